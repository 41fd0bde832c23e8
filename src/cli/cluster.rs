//! `ringlog cluster`: brokers, what they serve, what lies on their disks, whether all is well.
//!
//! Shell: asks the cluster. Owns the subcommands and what `health` calls healthy: every broker there, every partition led, no replica
//! behind. Source: rpk's `cluster info` and `cluster health`; Kafka's `kafka-cluster`.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::connect::{ConnectArgs, code_of};
use super::outcome::Tally;
use super::show::{Output, OutputArgs, Table, bytes, or_dash, write_json};
use super::{EXIT_FAILED, EXIT_UNREACHABLE, Failure};
use crate::client::ClientError;
use crate::client::admin::{BlockingAdmin, ClusterDescription, TopicDescription};

const EXAMPLES: &str = "\
Examples:
  ringlog cluster info
  ringlog cluster health -w
  ringlog cluster api-versions -b broker:9092 -o json";

/// How often `health -w` asks.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Shows brokers, their APIs and disks, and whether all is well.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ClusterCommand {
    /// Brokers, the controller, and how many topics there are
    #[command(after_help = "Example:\n  ringlog cluster info -o json")]
    Info,
    /// The cluster's id, alone
    #[command(after_help = "Example:\n  ringlog cluster id")]
    Id,
    /// Which requests each broker serves, in which versions
    #[command(after_help = "Example:\n  ringlog cluster api-versions -b broker:9092")]
    ApiVersions,
    /// What lies on the disks of the brokers
    #[command(after_help = "Example:\n  ringlog cluster log-dirs --topics orders")]
    LogDirs(LogDirsArgs),
    /// Whether every broker is there and every partition led and in sync; exit code 1 if not
    #[command(after_help = "Example:\n  ringlog cluster health -w --timeout 5s")]
    Health(HealthArgs),
}

#[derive(Args, Clone, Debug)]
struct LogDirsArgs {
    /// Only of these topics
    #[arg(long, value_name = "TOPIC,…", value_delimiter = ',')]
    topics: Vec<String>,
    /// Only on these brokers
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    brokers: Vec<i32>,
}

#[derive(Args, Clone, Debug)]
struct HealthArgs {
    /// Ask again and again, and say when something changes
    #[arg(short, long)]
    watch: bool,
    /// With --watch: end, with exit code 0, as soon as all is well
    #[arg(short, long, requires = "watch")]
    exit_when_healthy: bool,
}

/// Runs a subcommand.
pub(super) fn run(args: &ClusterArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let ClusterArgs { connect, output: OutputArgs { output }, command } = args;
    match command {
        ClusterCommand::Info => info(&connect.admin()?, *output, out),
        ClusterCommand::Id => {
            let cluster = connect.admin()?.describe_cluster()?;
            match output {
                Output::Json => write_json(out, &serde_json::json!({ "cluster_id": cluster.cluster_id }))?,
                _ => writeln!(out, "{}", cluster.cluster_id)?,
            }
            Ok(())
        }
        ClusterCommand::ApiVersions => api_versions(&connect.admin()?, *output, out),
        ClusterCommand::LogDirs(args) => log_dirs(&connect.admin()?, args, *output, out),
        ClusterCommand::Health(args) => health(connect, args, *output, out),
    }
}

fn info(admin: &BlockingAdmin, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let cluster = admin.describe_cluster()?;
    let topics = admin.list_topics(true)?;
    let partitions: usize = topics.iter().map(|topic| topic.partitions).sum();
    if output == Output::Json {
        let document = serde_json::json!({
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller,
            "brokers": cluster.brokers,
            "topics": topics.len(),
            "partitions": partitions,
        });
        write_json(out, &document)?;
        return Ok(());
    }
    writeln!(out, "CLUSTER     {}", cluster.cluster_id)?;
    writeln!(out, "CONTROLLER  {}", or_dash(cluster.controller))?;
    writeln!(out, "TOPICS      {} with {partitions} partitions\n", topics.len())?;
    let mut table = Table::new(&["#BROKER", "HOST", "#PORT", "RACK", "STATE"]);
    for broker in &cluster.brokers {
        table.row([
            broker.id.to_string(),
            broker.host.clone(),
            broker.port.to_string(),
            or_dash(broker.rack.as_ref()),
            if broker.fenced { "fenced" } else { "up" }.to_owned(),
        ]);
    }
    out.write_all(table.render().as_bytes())?;
    if output == Output::Wide {
        let mut table = Table::new(&["TOPIC", "#PARTITIONS", "#REPLICAS"]);
        for topic in &topics {
            table.row([topic.name.clone(), topic.partitions.to_string(), topic.replication_factor.to_string()]);
        }
        write!(out, "\n{}", table.render())?;
    }
    Ok(())
}

fn api_versions(admin: &BlockingAdmin, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let brokers = admin.api_versions(Vec::new())?;
    let mut tally = Tally::default();
    for broker in &brokers {
        match &broker.error {
            None => tally.done(),
            Some(error) => tally.failed(&format!("broker {}", broker.broker), error),
        }
    }
    if output == Output::Json {
        write_json(out, &brokers)?;
        return tally.end();
    }
    for broker in brokers.iter().filter(|broker| broker.error.is_none()) {
        writeln!(out, "broker {} at {}", broker.broker, broker.address)?;
        let mut table = Table::new(&["#KEY", "API", "VERSIONS", "#USED"]);
        for api in &broker.apis {
            table.row([
                api.key.to_string(),
                api.name.unwrap_or("-").to_owned(),
                format!("{}-{}", api.min, api.max),
                or_dash(api.usable),
            ]);
        }
        writeln!(out, "{}", table.render())?;
    }
    tally.end()
}

fn log_dirs(admin: &BlockingAdmin, args: &LogDirsArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let topics = if args.topics.is_empty() { None } else { Some(args.topics.clone()) };
    let brokers = admin.describe_log_dirs(args.brokers.clone(), topics)?;
    let mut tally = Tally::default();
    for broker in &brokers {
        match &broker.error {
            None => tally.done(),
            Some(error) => tally.failed(&format!("broker {}", broker.broker), error),
        }
        for dir in &broker.log_dirs {
            if let Some(error) = &dir.error {
                tally.failed(&format!("broker {}, {}", broker.broker, dir.path), error);
            }
        }
    }
    if output == Output::Json {
        write_json(out, &brokers)?;
        return tally.end();
    }
    let mut table = Table::new(&["#BROKER", "LOG-DIR", "#PARTITIONS", "#BYTES", "#FREE", "#TOTAL"]);
    let mut wide = Table::new(&["#BROKER", "PARTITION", "#SIZE", "#OFFSET-LAG", "LOG-DIR"]);
    for broker in &brokers {
        for dir in &broker.log_dirs {
            let sum: i64 = dir.partitions.iter().map(|one| one.size).sum();
            table.row([
                broker.broker.to_string(),
                dir.path.clone(),
                dir.partitions.len().to_string(),
                bytes(sum),
                or_dash(dir.usable_bytes.map(bytes)),
                or_dash(dir.total_bytes.map(bytes)),
            ]);
            for one in &dir.partitions {
                wide.row([
                    broker.broker.to_string(),
                    format!("{}-{}", one.topic, one.partition),
                    one.size.to_string(),
                    one.offset_lag.to_string(),
                    dir.path.clone(),
                ]);
            }
        }
    }
    out.write_all(table.render().as_bytes())?;
    if (output == Output::Wide || !args.topics.is_empty()) && !wide.is_empty() {
        write!(out, "\n{}", wide.render())?;
    }
    tally.end()
}

/// What one look at the cluster showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Health {
    healthy: bool,
    controller: Option<i32>,
    brokers: Vec<i32>,
    fenced_brokers: Vec<i32>,
    leaderless_partitions: Vec<String>,
    under_replicated_partitions: Vec<String>,
    offline_replicas: Vec<String>,
}

fn judge(cluster: &ClusterDescription, topics: &[TopicDescription]) -> Health {
    let (mut leaderless, mut under_replicated, mut offline) = (Vec::new(), Vec::new(), Vec::new());
    for topic in topics {
        for one in &topic.partitions {
            let name = format!("{}-{}", topic.name, one.partition);
            if one.leader.is_none() {
                leaderless.push(name.clone());
            }
            if one.in_sync.len() < one.replicas.len() {
                under_replicated.push(name.clone());
            }
            if !one.offline.is_empty() {
                offline.push(name);
            }
        }
    }
    let fenced: Vec<i32> = cluster.brokers.iter().filter(|broker| broker.fenced).map(|broker| broker.id).collect();
    Health {
        healthy: cluster.controller.is_some()
            && fenced.is_empty()
            && leaderless.is_empty()
            && under_replicated.is_empty()
            && offline.is_empty(),
        controller: cluster.controller,
        brokers: cluster.brokers.iter().map(|broker| broker.id).collect(),
        fenced_brokers: fenced,
        leaderless_partitions: leaderless,
        under_replicated_partitions: under_replicated,
        offline_replicas: offline,
    }
}

impl Health {
    fn write(&self, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
        /// More names than these are only counted.
        const NAMES_MAX: usize = 10;
        if output == Output::Json {
            return Ok(write_json(out, self)?);
        }
        let names = |names: &[String]| match names {
            [] => "none".to_owned(),
            names if names.len() <= NAMES_MAX || output == Output::Wide => names.join(", "),
            names => format!("{} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX),
        };
        let ids = |ids: &[i32]| names(&ids.iter().map(ToString::to_string).collect::<Vec<_>>());
        writeln!(out, "HEALTHY           {}", if self.healthy { "yes" } else { "no" })?;
        writeln!(out, "CONTROLLER        {}", or_dash(self.controller))?;
        writeln!(out, "BROKERS           {}", ids(&self.brokers))?;
        writeln!(out, "FENCED            {}", ids(&self.fenced_brokers))?;
        writeln!(out, "LEADERLESS        {}", names(&self.leaderless_partitions))?;
        writeln!(out, "UNDER-REPLICATED  {}", names(&self.under_replicated_partitions))?;
        writeln!(out, "OFFLINE REPLICAS  {}", names(&self.offline_replicas))?;
        Ok(out.flush()?)
    }
}

fn look(admin: &BlockingAdmin) -> Result<Health, ClientError> {
    Ok(judge(&admin.describe_cluster()?, &admin.describe_topics(Vec::new())?))
}

fn health(connect: &ConnectArgs, args: &HealthArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    if !args.watch {
        let health = look(&connect.admin()?)?;
        health.write(output, out)?;
        return if health.healthy { Ok(()) } else { Err(Failure::Told(EXIT_FAILED)) };
    }
    let admin = connect.admin()?;
    let mut before: Option<Result<Health, String>> = None;
    loop {
        let now = match look(&admin) {
            Ok(health) => Ok(health),
            Err(error) if code_of(&error) == EXIT_UNREACHABLE => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        if before.as_ref() != Some(&now) {
            if before.is_some() && output != Output::Json {
                writeln!(out)?;
            }
            match &now {
                Ok(health) => health.write(output, out)?,
                Err(why) if output == Output::Json => {
                    write_json(out, &serde_json::json!({ "healthy": false, "unreachable": why }))?;
                }
                Err(why) => writeln!(out, "HEALTHY           no\nUNREACHABLE       {why}")?,
            }
            out.flush()?;
        }
        if args.exit_when_healthy && now.as_ref().is_ok_and(|health| health.healthy) {
            return Ok(());
        }
        before = Some(now);
        super::pause(WATCH_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::admin::{BrokerDescription, PartitionDescription};

    fn cluster(fenced: bool) -> ClusterDescription {
        let broker = BrokerDescription { id: 1, host: "h".to_owned(), port: 9092, rack: None, fenced };
        ClusterDescription { cluster_id: "c".to_owned(), controller: Some(1), brokers: vec![broker] }
    }

    fn topic(leader: Option<i32>, in_sync: Vec<i32>) -> TopicDescription {
        let partition = PartitionDescription {
            partition: 0,
            leader,
            leader_epoch: Some(0),
            replicas: vec![1, 2],
            in_sync,
            offline: Vec::new(),
        };
        TopicDescription { name: "t".to_owned(), id: None, internal: false, partitions: vec![partition], error: None }
    }

    #[test]
    fn health_is_every_broker_and_every_replica() {
        assert!(judge(&cluster(false), &[topic(Some(1), vec![1, 2])]).healthy);
        assert_eq!(judge(&cluster(true), &[]).fenced_brokers, [1]);
        let sick = judge(&cluster(false), &[topic(None, vec![1])]);
        assert!(!sick.healthy);
        assert_eq!(
            (sick.leaderless_partitions, sick.under_replicated_partitions),
            (vec!["t-0".to_owned()], vec!["t-0".to_owned()])
        );
    }
}
