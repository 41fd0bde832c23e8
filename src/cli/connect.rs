//! The way to a cluster, as every command takes it: flags, the environment, profiles and properties files. No profile reaches
//! `bench`, `compare` and `tune`: the call stands in their reports and must be enough to measure the same again.
//!
//! Shell: reads files and the environment. Owns the shared flags, their order of strength, and which exit code a failure of the
//! client has. Does not own what settings mean (`client::settings`). Always: later is stronger among the broker on this host, the
//! current profile, `RINGLOG_BROKERS`, the profile of `--profile`, `--command-config`, `-b`, `-X`, the command's own flags; within a
//! profile among its brokers, its settings, its properties file. So what a command line says is stronger than the environment.
//! Source: rpk's profiles; Kafka's `--command-config`; kcat's `-X`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::builder::Resettable;
use serde::Deserialize;

use super::problems;
use super::serve_args::key_value;
use super::show::nearest;
use super::{EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, Failure};
use crate::bench::units;
use crate::client::admin::{Admin, BlockingAdmin};
use crate::client::settings::{Builder, HostPort};
use crate::client::{AdminSettings, CallError, ClientError, Settings};
use crate::config::client_rows::client_properties;
use crate::config::{Problem, Severity};

/// Where a broker of ours listens when nobody says otherwise.
pub(super) const DEFAULT_BROKER: &str = "127.0.0.1:9092";

const BROKERS_VARIABLE: &str = "RINGLOG_BROKERS";
const PROFILE_VARIABLE: &str = "RINGLOG_PROFILE";
const BROKERS_HELP: &str =
    "Brokers to ask first [env: RINGLOG_BROKERS, weaker than --profile and --command-config] [default: 127.0.0.1:9092]";

/// The flags by which a cluster is found. Whoever flattens them may give a default and words of its own.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct BrokersArgs {
    /// Brokers to ask first
    #[arg(
        short = 'b',
        long = "bootstrap-server",
        value_name = "HOST:PORT,…",
        env = BROKERS_VARIABLE,
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
    // Read by hand: clap does not tell whether a flag or the environment gave it.
    mut_arg("bootstrap", |arg| arg.global(true).env(Resettable::Reset).help(BROKERS_HELP)),
    mut_arg("settings", |arg| arg.global(true)),
    mut_arg("command_config", |arg| arg.global(true))
)]
pub(super) struct ConnectArgs {
    #[command(flatten)]
    pub(super) brokers: BrokersArgs,
    /// A profile of ~/.config/ringlog/config.toml [env: RINGLOG_PROFILE] [default: its current one]
    #[arg(long, value_name = "NAME", global = true, help_heading = "Connection")]
    pub(super) profile: Option<String>,
    /// How long to wait for an answer [default: 30s]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = units::parse_seconds,
        global = true,
        help_heading = "Connection"
    )]
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
        self.assemble(variable(BROKERS_VARIABLE), self.profile()?, defaults, flags)
    }

    fn assemble<S: Settings>(
        &self,
        environment: Option<String>,
        profile: Option<(String, Profile)>,
        defaults: &[(&str, &str)],
        flags: &[(&str, String)],
    ) -> Result<S, Failure> {
        let mut builder = S::builder().set_at("bootstrap.servers", DEFAULT_BROKER, "default");
        for (key, value) in defaults {
            builder = builder.set_at(key, value, "default");
        }
        let asked_for = self.profile.is_some();
        let from_environment = |builder: Builder<S>| match &environment {
            Some(brokers) => builder.set_at("bootstrap.servers", brokers, BROKERS_VARIABLE),
            None => builder,
        };
        if asked_for {
            builder = from_environment(builder);
        }
        if let Some((name, profile)) = profile {
            builder = profile.given_to(builder, &format!("profile {name}"))?;
        }
        if !asked_for {
            builder = from_environment(builder);
        }
        let BrokersArgs { bootstrap, settings, command_config } = &self.brokers;
        if let Some(file) = command_config {
            builder = builder.properties(&self.brokers.text(file)?, &file.display().to_string());
        }
        if let Some(brokers) = bootstrap {
            builder = builder.set_at("bootstrap.servers", brokers, "-b");
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
        let named = self.profile.clone().or_else(|| variable(PROFILE_VARIABLE));
        let none = |why: String| match &named {
            Some(name) => Err(no_profile(name, &why)),
            None => Ok(None),
        };
        let Some(path) = config_path() else {
            return none("there is no home folder to look for config.toml in".to_owned());
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return none(format!("{} does not exist", path.display()));
            }
            Err(error) => return Err(anyhow!(error).context(path.display().to_string()).into()),
        };
        choose_profile(&text, &path, named.as_deref())
    }
}

/// What the environment says, unless that is nothing.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

impl Profile {
    /// Its brokers, its settings, its properties file: the later is the stronger.
    fn given_to<S: Settings>(self, mut builder: Builder<S>, place: &str) -> anyhow::Result<Builder<S>> {
        if let Some(brokers) = self.brokers {
            let brokers = match brokers {
                Brokers::Text(text) => text,
                Brokers::List(list) => list.join(","),
            };
            builder = builder.set_at("bootstrap.servers", brokers, place);
        }
        for (key, value) in self.settings {
            builder = builder.set_at(&key, plain(&key, value)?, place);
        }
        if let Some(file) = self.command_config {
            let text = std::fs::read(&file).with_context(|| format!("{} of {place}", file.display()))?;
            builder = builder.properties(&text, &file.display().to_string());
        }
        Ok(builder)
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

    /// The broker that is asked first, by these flags beside that profile, while the environment names `env:1`.
    fn first_broker(args: &ConnectArgs, profile: Profile) -> String {
        let profile = Some(("lab".to_owned(), profile));
        let settings: AdminSettings = args.assemble(Some("env:1".to_owned()), profile, &[], &[]).unwrap();
        settings.client.bootstrap_servers[0].to_string()
    }

    #[test]
    fn what_the_command_line_names_is_stronger_than_the_environment_and_that_than_the_current_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let of_profile = || Profile { brokers: Some(Brokers::Text("lab:1".to_owned())), ..Profile::default() };
        let mut args = ConnectArgs::default();
        assert_eq!(first_broker(&args, of_profile()), "env:1");
        args.profile = Some("lab".to_owned());
        assert_eq!(first_broker(&args, of_profile()), "lab:1");
        let in_file = file("profile.properties", "bootstrap.servers=in-file:1\n");
        let with_file = |profile| Profile { command_config: Some(in_file.clone()), ..profile };
        assert_eq!(first_broker(&args, with_file(of_profile())), "in-file:1");
        assert_eq!(first_broker(&args, with_file(Profile::default())), "in-file:1", "the default is the weakest");
        let settings = [("bootstrap.servers".to_owned(), toml::Value::String("set:1".to_owned()))].into();
        assert_eq!(first_broker(&args, Profile { settings, ..Profile::default() }), "set:1");
        args.brokers.command_config = Some(file("command.properties", "metadata.broker.list=config:1\n"));
        assert_eq!(first_broker(&args, of_profile()), "config:1");
        args.brokers.bootstrap = Some("flag:1".to_owned());
        assert_eq!(first_broker(&args, of_profile()), "flag:1");
        let nothing: AdminSettings = ConnectArgs::default().assemble(None, None, &[], &[]).unwrap();
        assert_eq!(nothing.client.bootstrap_servers[0].to_string(), DEFAULT_BROKER);
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
