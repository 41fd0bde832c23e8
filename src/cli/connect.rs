//! The way to a cluster, as every command takes it: flags, the environment, profiles and properties files. No profile reaches
//! `bench`, `compare` and `tune`: the call stands in their reports and must be enough to measure the same again.
//!
//! Shell: reads files and the environment. Owns the shared flags, their order of strength, and which exit code a failure of the
//! client has. Does not own what settings mean (`client::settings`). Always: later is stronger among profile, the profile's
//! properties file, `--command-config`, `RINGLOG_BROKERS`, `-b`, `-X`, the command's own flags; without any, the broker is looked for on
//! this host. Source: rpk's profiles; Kafka's `--command-config`; kcat's `-X`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

use super::moments::duration_argument;
use super::problems;
use super::serve_args::key_value;
use super::show::nearest;
use super::{EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, Failure};
use crate::client::admin::{Admin, BlockingAdmin};
use crate::client::settings::HostPort;
use crate::client::{AdminSettings, CallError, ClientError, Settings};
use crate::config::client_rows::client_properties;
use crate::config::{Problem, Severity};

/// Where a broker of ours listens when nobody says otherwise.
pub(super) const DEFAULT_BROKER: &str = "127.0.0.1:9092";

/// The flags by which a cluster is found. Whoever flattens them may give a default and words of its own.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct BrokersArgs {
    /// Brokers to ask first
    #[arg(
        short = 'b',
        long = "bootstrap-server",
        value_name = "HOST:PORT,…",
        env = "RINGLOG_BROKERS",
        help_heading = "Connection"
    )]
    pub(super) bootstrap: Option<String>,
    /// A client setting, in Kafka's or librdkafka's words; may be given again
    #[arg(short = 'X', value_name = "KEY=VALUE", value_parser = key_value, help_heading = "Connection")]
    pub(super) settings: Vec<(String, String)>,
    /// A properties file with client settings
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    pub(super) command_config: Option<PathBuf>,
}

impl BrokersArgs {
    /// Where to begin.
    pub(super) fn bootstrap_servers(&self) -> String {
        self.bootstrap.clone().unwrap_or_else(|| DEFAULT_BROKER.to_owned())
    }

    /// The client's settings as words: those of the properties file, then those of `-X`, which are stronger.
    pub(super) fn words(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut words = Vec::new();
        if let Some(file) = &self.command_config {
            let entries = client_properties(&self.text(file)?).map_err(|(line, why)| match line {
                Some(line) => anyhow!("{}:{line}: {why}", file.display()),
                None => anyhow!("{}: {why}", file.display()),
            })?;
            words.extend(entries.into_iter().map(|entry| (entry.key, entry.value)));
        }
        words.extend(self.settings.iter().cloned());
        Ok(words)
    }

    fn text(&self, file: &Path) -> anyhow::Result<Vec<u8>> {
        std::fs::read(file).with_context(|| format!("--command-config {}", file.display()))
    }
}

/// Flags of every command that speaks to a cluster.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(
    mut_arg("bootstrap", |arg| arg.global(true).help("Brokers to ask first [default: 127.0.0.1:9092]")),
    mut_arg("settings", |arg| arg.global(true)),
    mut_arg("command_config", |arg| arg.global(true))
)]
pub(super) struct ConnectArgs {
    #[command(flatten)]
    pub(super) brokers: BrokersArgs,
    /// A profile of ~/.config/ringlog/config.toml
    #[arg(long, value_name = "NAME", env = "RINGLOG_PROFILE", global = true, help_heading = "Connection")]
    pub(super) profile: Option<String>,
    /// How long to wait for an answer [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration_argument, global = true, help_heading = "Connection")]
    pub(super) timeout: Option<Duration>,
    /// Nothing on stderr but errors
    #[arg(short, long, global = true, help_heading = "Connection")]
    pub(super) quiet: bool,
    /// Say on stderr what is done, and which settings have no effect
    #[arg(short, long, global = true, help_heading = "Connection")]
    pub(super) verbose: bool,
}

/// `~/.config/ringlog/config.toml`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    /// The profile that is used when none is named.
    current: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    brokers: Option<Brokers>,
    command_config: Option<PathBuf>,
    #[serde(default)]
    settings: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Brokers {
    Text(String),
    List(Vec<String>),
}

impl ConnectArgs {
    /// How long a call may take that has no time of its own.
    pub(super) fn patience(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(30))
    }

    /// Typed settings; `defaults` are weaker than anything given, `flags` stronger. Errors: everything that is wrong with them.
    pub(super) fn settings<S: Settings>(
        &self,
        defaults: &[(&str, &str)],
        flags: &[(&str, String)],
    ) -> Result<S, Failure> {
        let mut builder = S::builder();
        for (key, value) in defaults {
            builder = builder.set_at(key, value, "default");
        }
        let mut bootstrap = None;
        if let Some((name, profile)) = self.profile()? {
            let place = format!("profile {name}");
            bootstrap = profile.brokers.map(|brokers| match brokers {
                Brokers::Text(text) => text,
                Brokers::List(list) => list.join(","),
            });
            if let Some(file) = profile.command_config {
                let text = std::fs::read(&file).with_context(|| format!("{} of {place}", file.display()))?;
                builder = builder.properties(&text, &file.display().to_string());
            }
            for (key, value) in profile.settings {
                builder = builder.set_at(&key, plain(&key, value)?, &place);
            }
        }
        if let Some(bootstrap) = &bootstrap {
            builder = builder.set_at("bootstrap.servers", bootstrap, "profile");
        }
        let mut in_file = false;
        let BrokersArgs { bootstrap: brokers, settings, command_config } = &self.brokers;
        if let Some(file) = command_config {
            let text = self.brokers.text(file)?;
            in_file = String::from_utf8_lossy(&text).lines().any(|line| {
                let line = line.trim_start();
                line.starts_with("bootstrap.servers") || line.starts_with("metadata.broker.list")
            });
            builder = builder.properties(&text, &file.display().to_string());
        }
        let by_flag = settings.iter().any(|(key, _)| key == "bootstrap.servers" || key == "metadata.broker.list");
        match brokers {
            Some(brokers) => builder = builder.set_at("bootstrap.servers", brokers, "-b"),
            None if bootstrap.is_none() && !in_file && !by_flag => {
                builder = builder.set_at("bootstrap.servers", DEFAULT_BROKER, "default");
            }
            None => {}
        }
        if let Some(timeout) = self.timeout {
            builder = builder.set_at("request.timeout.ms", timeout.as_millis(), "--timeout");
        }
        for (key, value) in settings {
            builder = builder.set_at(key, value, "-X");
        }
        for (key, value) in flags {
            builder = builder.set_at(key, value, "flag");
        }
        builder.build().map_err(Failure::from)
    }

    /// An admin client whose cluster answers. Errors: nobody does, and why.
    pub(super) fn admin(&self) -> Result<BlockingAdmin, Failure> {
        let settings: AdminSettings = self.settings(&[("client.id", "ringlog")], &[])?;
        self.tell_notes(&settings.client.notes);
        let admin = Admin::new(settings)?.within(self.patience()).blocking();
        admin.reach()?;
        Ok(admin)
    }

    /// Says what settings do nothing, when asked to talk.
    pub(super) fn tell_notes(&self, notes: &[Problem]) {
        if self.verbose && !notes.is_empty() {
            _ = problems::write_problems(&mut std::io::stderr().lock(), problems::paint_stderr(), notes);
        }
    }

    /// A line on stderr, unless quiet.
    pub(super) fn say(&self, line: impl std::fmt::Display) {
        if !self.quiet {
            use std::io::Write as _;
            // Nobody is left to tell when this fails.
            _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    fn profile(&self) -> Result<Option<(String, Profile)>, Failure> {
        let Some(path) = config_path() else {
            return match &self.profile {
                Some(name) => Err(no_profile(name, "there is no home folder to look for config.toml in")),
                None => Ok(None),
            };
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match &self.profile {
                    Some(name) => Err(no_profile(name, &format!("{} does not exist", path.display()))),
                    None => Ok(None),
                };
            }
            Err(error) => return Err(anyhow!(error).context(path.display().to_string()).into()),
        };
        choose_profile(&text, &path, self.profile.as_deref())
    }
}

/// A value of a profile as a properties file would have it.
fn plain(key: &str, value: toml::Value) -> anyhow::Result<String> {
    Ok(match value {
        toml::Value::String(text) => text,
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        _ => return Err(anyhow!("profile: {key} is a string, a number or a boolean")),
    })
}

fn choose_profile(text: &str, path: &Path, named: Option<&str>) -> Result<Option<(String, Profile)>, Failure> {
    let mut file: ConfigFile = toml::from_str(text).map_err(|error| {
        Failure::Config(vec![Problem {
            severity: Severity::Error,
            place: path.display().to_string(),
            message: error.to_string().trim().to_owned(),
            help: Some("a profile is [profiles.NAME] with brokers, command_config and settings".to_owned()),
        }])
    })?;
    let Some(name) = named.map(str::to_owned).or_else(|| file.current.take()) else { return Ok(None) };
    match file.profiles.remove(&name) {
        Some(profile) => Ok(Some((name, profile))),
        None => {
            let known = file.profiles.keys().map(String::as_str);
            let help = match nearest(&name, known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("{} has {}", path.display(), listed(file.profiles.keys())),
            };
            Err(no_profile(&name, &help))
        }
    }
}

fn listed<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "no profiles".to_owned() } else { names.join(", ") }
}

fn no_profile(name: &str, help: &str) -> Failure {
    Failure::Config(vec![Problem {
        severity: Severity::Error,
        place: "--profile".to_owned(),
        message: format!("there is no profile {name}"),
        help: Some(help.to_owned()),
    }])
}

/// `RINGLOG_CONFIG`, else `config.toml` in the folder for settings.
fn config_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RINGLOG_CONFIG") {
        return Some(path.into());
    }
    let folder = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".config")))?;
    Some(folder.join("ringlog").join("config.toml"))
}

/// The exit code of what went wrong with a client, if it was one.
pub(super) fn exit_code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ClientError>() {
        Some(error) => code_of(error),
        None => EXIT_FAILED,
    }
}

/// The exit code of a client's failure: unreachable and late are told apart from refusals.
pub(super) fn code_of(error: &ClientError) -> u8 {
    match error {
        ClientError::Call(CallError::Connect { .. } | CallError::Disconnected { .. } | CallError::TimedOut { .. }) => {
            EXIT_UNREACHABLE
        }
        ClientError::TimedOut { last: Some(last), .. } if last.code().is_some() => EXIT_FAILED,
        ClientError::TimedOut { .. } => EXIT_UNREACHABLE,
        ClientError::Misuse(_) => EXIT_USAGE,
        _ => EXIT_FAILED,
    }
}

/// Whether the text can be a list of brokers; for the shims, which check it before anything else.
pub(super) fn check_brokers(list: &str) -> Result<(), String> {
    for broker in list.split(',').map(str::trim).filter(|broker| !broker.is_empty()) {
        if !broker.contains(':') {
            return Err(broker.to_owned());
        }
        HostPort::parse(broker).map_err(|_| broker.to_owned())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str, named: Option<&str>) -> Result<Option<(String, Profile)>, Failure> {
        choose_profile(text, Path::new("config.toml"), named)
    }

    const FILE: &str = "current = \"lab\"\n[profiles.lab]\nbrokers = \"a:1\"\n[profiles.lab.settings]\n\
                        \"request.timeout.ms\" = 5\n[profiles.prod]\nbrokers = [\"b:1\", \"c:1\"]\n";

    #[test]
    fn the_named_profile_is_taken_and_else_the_current_one() {
        assert_eq!(profile(FILE, None).unwrap().unwrap().0, "lab");
        assert_eq!(profile(FILE, Some("prod")).unwrap().unwrap().0, "prod");
        assert!(profile("", None).unwrap().is_none());
    }

    #[test]
    fn unknown_profiles_and_keys_are_refused_with_the_nearest() {
        let Err(Failure::Config(problems)) = profile(FILE, Some("prd")) else { panic!("taken") };
        assert_eq!(problems[0].help.as_deref(), Some("did you mean prod?"));
        assert!(matches!(profile("[profiles.a]\nbroker = \"x\"", Some("a")), Err(Failure::Config(_))));
        assert!(matches!(profile("[", None), Err(Failure::Config(_))));
    }

    #[test]
    fn flags_are_stronger_than_the_rest() {
        let args = ConnectArgs {
            brokers: BrokersArgs {
                bootstrap: Some("h:1".to_owned()),
                settings: vec![("client.id".to_owned(), "x".to_owned())],
                command_config: None,
            },
            ..ConnectArgs::default()
        };
        let settings: AdminSettings = args.settings(&[("client.id", "d")], &[]).unwrap();
        assert_eq!(settings.client.client_id, "x");
        assert_eq!(settings.client.bootstrap_servers[0].to_string(), "h:1");
        let settings: AdminSettings = args.settings(&[], &[("client.id", "f".to_owned())]).unwrap();
        assert_eq!(settings.client.client_id, "f");
    }

    #[test]
    fn addresses_without_a_port_are_seen() {
        assert_eq!(check_brokers("a:1,b:2"), Ok(()));
        assert_eq!(check_brokers("a:1,foo"), Err("foo".to_owned()));
        assert_eq!(check_brokers("a:x"), Err("a:x".to_owned()));
    }
}
