//! A target as it is reached: started or running, asked who it is, its topics made and deleted.
//!
//! Shell; blocking. Owns the broker it started and the administrative connection. Does not own loads (`turn`). Always true: a
//! broker that was not started here is neither stopped nor pinned; topics that were made are deleted again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::brokers::{Broker, Kind};
use super::kafka;
use super::presets::Class;
use super::report::{Comparison, TargetFacts};
use super::targets::{Source, Target};
use crate::bench::ack_class::software;
use crate::bench::plan::Plan;
use crate::bench::target::{Cluster, client_settings};
use crate::bench::{report::REPORT_BYTES_MAX, units};
use crate::client::admin::NewTopic;
use crate::client::{Admin, AdminSettings, Io, Settings as _};

/// Files of deleted topics are removed after this, at both targets: a minute of them would fill a disk, and each turn waits for
/// it. Not 0, with which Kafka looks for them without a pause.
const DELETE_DELAY_MS: &str = "100";
/// How long creating or deleting a topic of many partitions may take.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(120);

/// One side of the comparison.
pub(super) struct Side {
    /// 0 or 1.
    pub(super) index: usize,
    /// As it is told of.
    pub(super) facts: TargetFacts,
    /// `bootstrap.servers`; empty of a recorded one.
    pub(super) address: String,
    pid: Option<u32>,
    admin: Option<String>,
    /// When it was started here.
    pub(super) broker: Option<Broker>,
    /// When its numbers are those of an earlier comparison: that, and which of its targets.
    pub(super) recorded: Option<(Box<Comparison>, usize)>,
    io: Option<Io>,
}

/// What starting takes.
pub(super) struct Starting<'a> {
    /// For fresh directories.
    pub(super) directory: &'a Path,
    /// Of brokers; empty leaves them to the kernel.
    pub(super) cores: &'a [usize],
    /// Whether directories stay.
    pub(super) keep: bool,
    /// This program.
    pub(super) program: &'a Path,
    /// Of Kafka, when it was given apart from the target.
    pub(super) kafka_home: Option<&'a Path>,
    /// Of brokers, weaker than the target's own.
    pub(super) settings: Vec<(String, String)>,
}

impl Starting<'_> {
    /// The settings of a broker that are not its defaults: `own` are those of its target.
    fn overrides(&self, own: &[(String, String)]) -> Vec<(String, String)> {
        let weaker = self.settings.iter().filter(|(name, _)| !own.iter().any(|(given, _)| given == name));
        weaker.chain(own).cloned().collect()
    }
}

impl Side {
    fn new(index: usize, target: &Target) -> Self {
        Self {
            index,
            facts: TargetFacts { name: target.name.clone(), ..TargetFacts::default() },
            address: String::new(),
            pid: None,
            admin: None,
            broker: None,
            recorded: None,
            io: None,
        }
    }

    /// What would run at a target, or what was recorded of it, down to the file; a broker that runs already is its address. Looks
    /// before anything is started whether it is there. Errors: what is not, and what to do.
    pub(super) fn software(
        target: &Target,
        program: &Path,
        kafka_home: Option<&Path>,
        say: &mut dyn FnMut(String),
    ) -> Result<String, String> {
        let found = match &target.source {
            Source::Recorded { file } => Self::new(0, target).read_recorded(file).and_then(|()| stamp(file)),
            Source::Kafka { home, .. } => kafka::find(home.as_deref().or(kafka_home), say)
                .map(|kit| format!("kafka {} in {} on {}", kit.version, kit.libs.display(), kit.java)),
            Source::Ringlog { binary, .. } => {
                let binary = binary.as_deref().unwrap_or(program);
                version(binary).and_then(|version| Ok(format!("ringlog {version}, {}", stamp(binary)?)))
            }
            Source::Running { address, .. } => Ok(address.clone()),
        };
        found.map_err(|error| format!("{}: {error}", target.name))
    }

    /// Starts or reaches a target.
    pub(super) fn open(
        index: usize,
        target: &Target,
        starting: &Starting<'_>,
        say: &mut dyn FnMut(String),
    ) -> Result<Self, String> {
        let mut side = Self::new(index, target);
        let named = |error: String| format!("{}: {error}", target.name);
        match &target.source {
            Source::Recorded { file } => {
                side.read_recorded(file).map_err(named)?;
                return Ok(side);
            }
            Source::Running { address, pid, admin } => {
                (side.address, side.pid, side.admin) = (address.clone(), *pid, admin.clone());
                side.facts.how = format!("running already, at {address}");
            }
            Source::Ringlog { binary, overrides } => {
                let binary = binary.clone().unwrap_or_else(|| starting.program.to_owned());
                side.facts.version = version(&binary).map_err(named)?;
                let overrides = starting.overrides(overrides);
                side.facts.settings = overrides.iter().cloned().collect();
                let kind = Kind::Ringlog { binary, overrides };
                side.start(kind, target, starting, say).map_err(named)?;
            }
            Source::Kafka { home, overrides, heap } => {
                let kit = kafka::find(home.as_deref().or(starting.kafka_home), say).map_err(named)?;
                side.facts.version = format!("{} on {}", kit.version, kit.java);
                let overrides = starting.overrides(overrides);
                side.facts.settings = overrides.iter().cloned().collect();
                side.facts.settings.insert("heap".to_owned(), heap.clone());
                let kind = Kind::Kafka { kit, overrides, heap: heap.clone() };
                side.start(kind, target, starting, say).map_err(named)?;
            }
        }
        side.io = Some(Io::start(&format!("compare-{index}")).map_err(|error| named(error.to_string()))?);
        side.identify().map_err(named)?;
        Ok(side)
    }

    fn start(
        &mut self,
        kind: Kind,
        target: &Target,
        starting: &Starting<'_>,
        say: &mut dyn FnMut(String),
    ) -> Result<(), String> {
        say(format!("starting {}", target.name));
        let broker = Broker::start(kind, &starting.directory.join(&target.name), starting.cores, starting.keep)?;
        self.facts.how = broker.command.clone();
        self.address = broker.address();
        self.broker = Some(broker);
        Ok(())
    }

    fn read_recorded(&mut self, file: &Path) -> Result<(), String> {
        let shown = file.display();
        let bytes = std::fs::metadata(file).map_err(|error| format!("{shown}: {error}"))?.len();
        if bytes > REPORT_BYTES_MAX {
            return Err(format!("{shown}: {} are no compare.json", units::bytes(bytes as f64)));
        }
        let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
        let recorded = Comparison::from_json(&text).map_err(|why| format!("{shown} {why}"))?;
        let place = recorded.targets.iter().position(|facts| facts.name == self.facts.name);
        let place = place.or_else(|| recorded.targets.iter().position(|facts| facts.software == self.facts.name));
        let Some(place) = place else {
            let names: Vec<&str> = recorded.targets.iter().map(|facts| facts.name.as_str()).collect();
            return Err(format!("{shown} holds {}, and no {}", names.join(" and "), self.facts.name));
        };
        let name = std::mem::take(&mut self.facts.name);
        self.facts = TargetFacts {
            name,
            recorded: Some(format!("{shown}, {}", recorded.started_at)),
            warm_seconds: 0.0,
            ..recorded.targets[place].clone()
        };
        self.recorded = Some((Box::new(recorded), place));
        Ok(())
    }

    /// Asks the broker what it is. A JVM that accepts connections may not answer yet: the client asks again.
    fn identify(&mut self) -> Result<(), String> {
        let settings = client_settings(&self.plan(&Plan::default())).map_err(|error| error.to_string())?;
        let found = self.on_io(move || async move {
            let cluster = Cluster::connect(settings).await?;
            let (_, fingerprint) = cluster.identity().await?;
            let (broker, _) = cluster.settings(None).await;
            Ok::<_, crate::bench::target::BenchError>((software(&broker), fingerprint))
        });
        let (software, fingerprint) = found.map_err(|error| self.failure(&error.to_string()))?;
        self.facts.software = software.to_owned();
        if self.facts.version.is_empty() {
            self.facts.version = format!("APIs {fingerprint}");
        }
        Ok(())
    }

    fn on_io<F, Fut, T>(&self, make: F) -> T
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        self.io.as_ref().expect("a target that is spoken to has its thread").block_on(make)
    }

    /// Whether anything is measured of it now.
    pub(super) fn is_measured(&self) -> bool {
        self.recorded.is_none()
    }

    /// What is known beside `error`: that the broker died, when it did.
    pub(super) fn failure(&mut self, error: &str) -> String {
        match self.broker.as_mut().and_then(Broker::obituary) {
            Some(obituary) => format!("{error}; {obituary}"),
            None => error.to_owned(),
        }
    }

    /// Of its process, when it is known.
    pub(super) fn pid(&self) -> Option<u32> {
        self.broker.as_ref().and_then(Broker::pid).or(self.pid)
    }

    /// Where its data lies, when it was started here.
    pub(super) fn data(&self) -> Option<PathBuf> {
        self.broker.as_ref().map(Broker::data)
    }

    /// The plan with this side's address.
    pub(super) fn plan(&self, plan: &Plan) -> Plan {
        let admin = self.broker.as_ref().and_then(|broker| broker.admin.clone()).or_else(|| self.admin.clone());
        Plan { bootstrap: self.address.clone(), pid: self.pid(), admin, label: self.facts.name.clone(), ..plan.clone() }
    }

    /// The settings of a broker to be started. A topic's own delay is not asked when all of it is deleted, at Kafka.
    pub(super) fn broker_settings() -> Vec<(String, String)> {
        vec![("log.segment.delete.delay.ms".to_owned(), DELETE_DELAY_MS.to_owned())]
    }

    /// The settings of a topic that promises `class`, in the words of this side.
    pub(super) fn topic_settings(&self, class: Class) -> Vec<(String, String)> {
        let mut settings = class.topic_settings(&self.facts.software);
        settings.push(("file.delete.delay.ms".to_owned(), DELETE_DELAY_MS.to_owned()));
        settings
    }

    /// Makes a topic and waits until it is there.
    pub(super) fn create(&self, name: &str, partitions: u32, class: Class) -> Result<(), String> {
        let mut topic = NewTopic::new(name).partitions(i32::try_from(partitions).unwrap_or(i32::MAX));
        for (key, value) in self.topic_settings(class) {
            topic = topic.config(key, value);
        }
        let created = self.blocking()?.create_topics(vec![topic], false).map_err(|error| error.to_string())?;
        match created.first().and_then(|created| created.error.as_ref()) {
            Some(error) => Err(format!("topic {name} could not be made: {error}")),
            None => Ok(()),
        }
    }

    /// Deletes a topic. That it is not there any more is fine.
    pub(super) fn delete(&mut self, name: &str) {
        // A broker that died is not waited for; its own failure is the one to tell.
        if self.broker.as_mut().is_some_and(|broker| broker.obituary().is_some()) {
            return;
        }
        _ = self.blocking().map(|admin| admin.delete_topics(vec![name.to_owned()]));
    }

    fn blocking(&self) -> Result<crate::client::BlockingAdmin, String> {
        let settings = AdminSettings::builder()
            .set("bootstrap.servers", &self.address)
            .build()
            .map_err(|error| error.to_string())?;
        let io = self.io.as_ref().expect("a target that is spoken to has its thread");
        Ok(Admin::on(io, settings).within(ADMIN_TIMEOUT).blocking())
    }
}

/// Tells a file from what replaces it: its path, length and last change.
fn stamp(file: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let found = std::fs::metadata(file).map_err(failed)?;
    let changed = found.modified().map_err(failed)?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} of {} bytes, changed at {}", file.display(), found.len(), changed.as_millis()))
}

/// The first line of `BINARY version`.
fn version(binary: &Path) -> Result<String, String> {
    let output = std::process::Command::new(binary).arg("--version").stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", binary.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or("unknown version").trim().trim_start_matches("ringlog ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_of_a_file_has_another_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ringlog");
        std::fs::write(&file, "one").unwrap();
        let first = stamp(&file).unwrap();
        assert_eq!(stamp(&file).unwrap(), first);
        std::fs::write(&file, "another").unwrap();
        assert_ne!(stamp(&file).unwrap(), first);
        assert!(stamp(&directory.path().join("none")).unwrap_err().contains("none"));
    }
}
