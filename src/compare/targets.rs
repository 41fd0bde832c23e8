//! What is compared: two targets, as the command line names them.
//!
//! Pure. Owns the spelling of `--target` and `--kafka` and which two targets they come to. Does not own starting or reaching
//! them (`brokers`). Always true: the first target is the one whose ratio is told ("ours"), the second what it is held against;
//! their names differ; what is not understood is refused with a sentence that shows a right example.

use std::path::PathBuf;

/// Names longer than this do not fit a table.
const NAME_CHARS_MAX: usize = 24;
/// How targets are written; shown when one is not understood.
const HOW: &str = "write NAME=HOST:PORT[,pid=N][,admin=HOST:PORT], NAME=ringlog[:BINARY][,override=KEY=VALUE…], \
                   NAME=kafka[:DIR][,override=KEY=VALUE…][,heap=1g] or NAME=@RECORDED.json";
/// The heap of a Kafka that is started: what its own start script gives it.
const HEAP: &str = "1g";

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// In tables and legends.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
}

/// Where a target comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Started for the comparison: this program, or another build of it.
    Ringlog {
        /// The build; `None` is the program that is running.
        binary: Option<PathBuf>,
        /// Settings of the broker.
        overrides: Vec<(String, String)>,
    },
    /// Started for the comparison.
    Kafka {
        /// A directory with Kafka's `libs`; `None` looks in the usual places and fetches it otherwise.
        home: Option<PathBuf>,
        /// Settings of the broker.
        overrides: Vec<(String, String)>,
        /// `-Xms` and `-Xmx`.
        heap: String,
    },
    /// Runs already, and goes on running afterwards.
    Running {
        /// `bootstrap.servers`.
        address: String,
        /// Its process, when it runs on this host and should be looked at.
        pid: Option<u32>,
        /// Of its metrics, when it is ours.
        admin: Option<String>,
    },
    /// The results of an earlier comparison.
    Recorded {
        /// A `compare.json`.
        file: PathBuf,
    },
}

impl Target {
    /// Reads `NAME=SOURCE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("--target {text}: {why}");
        let (name, source) = text.split_once('=').ok_or_else(|| wrong(format!("there is no name; {HOW}")))?;
        check_name(name).map_err(wrong)?;
        let source = Source::parse(source).map_err(wrong)?;
        Ok(Self { name: name.to_owned(), source })
    }

    /// The program that is running, as a broker with its defaults.
    pub fn this_program() -> Self {
        Self { name: "ringlog".to_owned(), source: Source::Ringlog { binary: None, overrides: Vec::new() } }
    }

    /// A Kafka to be started; `home` as given by `--kafka`, where `auto` looks for it.
    pub fn kafka(home: Option<PathBuf>) -> Self {
        let source = Source::Kafka { home, overrides: Vec::new(), heap: HEAP.to_owned() };
        Self { name: "kafka".to_owned(), source }
    }

    /// As the command line would name it again.
    pub fn to_argument(&self) -> String {
        format!("{}={}", self.name, self.source.to_argument())
    }

    /// Whether it is started, and ended, by the comparison.
    pub fn is_started(&self) -> bool {
        matches!(self.source, Source::Ringlog { .. } | Source::Kafka { .. })
    }
}

/// The two targets of a comparison: what was named, and Ringlog against Kafka where less was.
pub fn pair(kafka: Option<&str>, targets: &[String]) -> Result<[Target; 2], String> {
    let named: Vec<Target> = targets.iter().map(|text| Target::parse(text)).collect::<Result<_, _>>()?;
    let kafka = kafka.map(|home| Target::kafka((home != "auto").then(|| PathBuf::from(home))));
    let two = match (named.as_slice(), kafka) {
        ([], kafka) => [Target::this_program(), kafka.unwrap_or_else(|| Target::kafka(None))],
        ([only], Some(kafka)) => [only.clone(), kafka],
        ([only], None) => [Target::this_program(), only.clone()],
        ([first, second], None) => [first.clone(), second.clone()],
        ([_, _], Some(_)) => {
            return Err("--kafka is a target of its own; give one --target beside it, or two without it".to_owned());
        }
        _ => return Err(format!("{} targets were given; a comparison is of two", named.len())),
    };
    if two[0].name == two[1].name {
        return Err(format!("both targets are called {}; give them different names", two[0].name));
    }
    if two.iter().all(|target| matches!(target.source, Source::Recorded { .. })) {
        return Err("both targets are recorded: there is nothing to measure; `ringlog bench report` lays recorded runs side by side".to_owned());
    }
    Ok(two)
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(fits) || name.starts_with('.') {
        return Err(format!("`{name}` is no name: up to {NAME_CHARS_MAX} letters, digits, dashes and dots"));
    }
    Ok(())
}

/// The options a source may have.
#[derive(Default)]
struct Options {
    pid: Option<u32>,
    admin: Option<String>,
    overrides: Vec<(String, String)>,
    heap: Option<String>,
}

impl Options {
    fn parse(text: Option<&str>) -> Result<Self, String> {
        const NAMES: [&str; 4] = ["pid", "admin", "override", "heap"];
        // A comma may also stand within a value, as in log.dirs: only a known name begins a new option.
        let mut pieces: Vec<String> = Vec::new();
        for piece in text.unwrap_or_default().split(',').filter(|_| text.is_some()) {
            let begins = piece.split_once('=').is_some_and(|(name, _)| NAMES.contains(&name));
            match pieces.last_mut() {
                Some(last) if !begins && last.starts_with("override=") => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => pieces.push(piece.to_owned()),
            }
        }
        let mut options = Self::default();
        for piece in &pieces {
            let (name, value) = piece.split_once('=').ok_or_else(|| format!("`{piece}` is no option; {HOW}"))?;
            match name {
                "pid" => {
                    options.pid = Some(
                        value
                            .parse()
                            .ok()
                            .filter(|pid| *pid > 0)
                            .ok_or_else(|| format!("`{value}` is no process id"))?,
                    )
                }
                "admin" => options.admin = Some(address(value)?),
                "heap" => options.heap = Some(heap(value)?),
                "override" => {
                    let (key, value) =
                        value.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("write override=KEY=VALUE")?;
                    options.overrides.push((key.to_owned(), value.to_owned()));
                }
                _ => return Err(format!("`{name}` is no option of a target; there are {}", NAMES.join(", "))),
            }
        }
        Ok(options)
    }

    /// Refuses what the kind of source has no use for.
    fn only(&self, kind: &str, names: &[&str]) -> Result<(), String> {
        let given = [
            ("pid", self.pid.is_some()),
            ("admin", self.admin.is_some()),
            ("override", !self.overrides.is_empty()),
            ("heap", self.heap.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && !names.contains(name)) {
            Some((name, _)) => Err(format!("{name}= says nothing of {kind}")),
            None => Ok(()),
        }
    }
}

impl Source {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(file) = text.strip_prefix('@') {
            if file.is_empty() {
                return Err("@ is followed by the file of a recorded comparison".to_owned());
            }
            return Ok(Self::Recorded { file: PathBuf::from(file) });
        }
        let (head, options) = match text.split_once(',') {
            Some((head, options)) => (head, Options::parse(Some(options))?),
            None => (text, Options::default()),
        };
        let path = |prefix: &str| match head.strip_prefix(prefix) {
            Some("") => Some(None),
            // `ringlog:9092` is a host and a port; a path has a slash.
            Some(rest) => {
                rest.strip_prefix(':').filter(|path| path.contains('/')).map(|path| Some(PathBuf::from(path)))
            }
            None => None,
        };
        if let Some(binary) = path("ringlog") {
            options.only("a broker that is started", &["override"])?;
            return Ok(Self::Ringlog { binary, overrides: options.overrides });
        }
        if let Some(home) = path("kafka") {
            options.only("a Kafka that is started", &["override", "heap"])?;
            return Ok(Self::Kafka {
                home,
                overrides: options.overrides,
                heap: options.heap.unwrap_or_else(|| HEAP.to_owned()),
            });
        }
        options.only("a broker that runs already", &["pid", "admin"])?;
        Ok(Self::Running { address: address(head)?, pid: options.pid, admin: options.admin })
    }

    fn to_argument(&self) -> String {
        let with = |head: String, overrides: &[(String, String)]| {
            overrides.iter().fold(head, |text, (key, value)| format!("{text},override={key}={value}"))
        };
        let at = |name: &str, path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| name.to_owned(), |path| format!("{name}:{}", path.display()))
        };
        match self {
            Self::Ringlog { binary, overrides } => with(at("ringlog", binary), overrides),
            Self::Kafka { home, overrides, heap } => {
                let text = with(at("kafka", home), overrides);
                if heap == HEAP { text } else { format!("{text},heap={heap}") }
            }
            Self::Running { address, pid, admin } => {
                let pid = pid.map(|pid| format!(",pid={pid}")).unwrap_or_default();
                let admin = admin.as_ref().map(|admin| format!(",admin={admin}")).unwrap_or_default();
                format!("{address}{pid}{admin}")
            }
            Self::Recorded { file } => format!("@{}", file.display()),
        }
    }
}

fn address(text: &str) -> Result<String, String> {
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(1..) => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is no HOST:PORT; {HOW}")),
    }
}

/// A size as the JVM reads it.
fn heap(text: &str) -> Result<String, String> {
    let number = text.strip_suffix(['m', 'M', 'g', 'G']).map(str::parse::<u32>);
    match number {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is no heap size; write it as 512m or 2g")),
    }
}

/// `0,2,3`
pub(super) fn list(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// A word a shell leaves as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_in_all_their_forms_and_written_back() {
        for text in [
            "kafka=127.0.0.1:9092",
            "kafka=127.0.0.1:9092,pid=77",
            "a=[::1]:9092,pid=77,admin=127.0.0.1:9644",
            "new=ringlog",
            "old=ringlog:/opt/old/ringlog",
            "b=ringlog,override=engine.shards=1,override=log.dirs=/a,/b",
            "kafka=kafka",
            "kafka=kafka:/opt/kafka,override=num.io.threads=4,heap=2g",
            "before=@compare.json",
        ] {
            assert_eq!(Target::parse(text).map(|target| target.to_argument()), Ok(text.to_owned()));
        }
        let Source::Ringlog { overrides, .. } = Target::parse("b=ringlog,override=log.dirs=/a,/b").unwrap().source
        else {
            panic!()
        };
        assert_eq!(overrides, [("log.dirs".to_owned(), "/a,/b".to_owned())]);
        let running = Target::parse("x=ringlog:9092").unwrap();
        assert!(!running.is_started(), "a host called ringlog is no binary");
    }

    #[test]
    fn what_is_not_understood_is_refused_with_a_reason() {
        for (text, part) in [
            ("127.0.0.1:9092", "no name"),
            ("a b=h:1", "no name"),
            ("=h:1", "no name"),
            ("a=host", "HOST:PORT"),
            ("a=host:0", "HOST:PORT"),
            ("a=host:70000", "HOST:PORT"),
            ("a=host:1,pid=0", "process id"),
            ("a=host:1,override=x=y", "says nothing"),
            ("a=ringlog,pid=3", "says nothing"),
            ("a=ringlog,override=x", "override=KEY=VALUE"),
            ("a=kafka,heap=lots", "heap size"),
            ("a=kafka,heap=2é", "heap size"),
            ("a=kafka,colour=red", "no option"),
            ("a=@", "recorded"),
        ] {
            let error = Target::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn fewer_than_two_are_filled_up_with_this_program_and_kafka() {
        let names = |kafka, targets: &[&str]| {
            let targets: Vec<String> = targets.iter().map(|text| (*text).to_owned()).collect();
            pair(kafka, &targets).map(|two| two.map(|target| target.to_argument()))
        };
        let both = |a: &str, b: &str| Ok([a.to_owned(), b.to_owned()]);
        assert_eq!(names(None, &[]), both("ringlog=ringlog", "kafka=kafka"));
        assert_eq!(names(Some("auto"), &[]), both("ringlog=ringlog", "kafka=kafka"));
        assert_eq!(names(Some("/opt/k"), &["a=h:1"]), both("a=h:1", "kafka=kafka:/opt/k"));
        assert_eq!(names(None, &["kafka=h:1,pid=5"]), both("ringlog=ringlog", "kafka=h:1,pid=5"));
        assert_eq!(names(None, &["a=h:1", "b=h:2"]), both("a=h:1", "b=h:2"));
        assert!(names(Some("auto"), &["a=h:1", "b=h:2"]).unwrap_err().contains("--kafka"));
        assert!(names(None, &["a=h:1", "a=h:2"]).unwrap_err().contains("different names"));
        assert!(names(None, &["a=h:1", "b=h:2", "c=h:3"]).unwrap_err().contains("3 targets"));
        assert!(names(None, &["a=@x", "b=@y"]).unwrap_err().contains("recorded"));
    }
}
