//! `kafka-cluster`.
//!
//! Shell: asks the cluster. Owns the tool's subcommands and text. `unregister` and `unregister-controller` are requests this client does
//! not speak: the tool says so. Source: Kafka 4.4's ClusterTool, asked.

use super::exceptions::{message, spelled_call};
use super::options::{Flag, Manner, Words, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread};
use crate::client::admin::{BlockingAdmin, BrokerApis, BrokerDescription};

pub(super) const TOOL: Tool = Tool {
    name: "kafka-cluster",
    about: "Shows the cluster: cluster-id, list-endpoints, api-versions.",
    flags: FLAGS,
    // Its first word is a subcommand: words that are no options are looked at here.
    manner: Manner::Plain,
    wrong: Wrong::After("kafka-cluster: error: "),
    run,
};

const FLAGS: &[Flag] = &[
    value("bootstrap-controller", "host:port,…", "Controllers to connect to: not spoken here.").or('C'),
    value("bootstrap-server", "host:port,…", "Brokers to connect to.").or('b'),
    value("command-config", "file", "A properties file with settings of the client.").or('c'),
    value("config", "file", "The same, as it was called before Kafka 4.2."),
    switch("help", "Show this page.").or('h'),
    value("id", "id", "unregister: which broker.").or('i'),
    switch("include-fenced-brokers", "list-endpoints: fenced brokers too."),
];

const COMMANDS: &[&str] = &["cluster-id", "unregister", "unregister-controller", "list-endpoints", "api-versions"];

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let error = |why: String| {
        Stop::Said(format!("usage: kafka-cluster [-h] {{{}}} ...\nkafka-cluster: error: {why}", COMMANDS.join(",")))
    };
    let command = match words.free.as_slice() {
        [] => return Err(error("too few arguments".to_owned())),
        [command] => command.as_str(),
        [_, rest @ ..] => return Err(error(format!("unrecognized arguments: '{}'", rest.join(" ")))),
    };
    if !COMMANDS.contains(&command) {
        let known: Vec<String> = COMMANDS.iter().map(|name| format!("'{name}'")).collect();
        return Err(error(format!("invalid choice: '{command}' (choose from {})", known.join(", "))));
    }
    if !words.has("bootstrap-server") && !words.has("bootstrap-controller") {
        return Err(error(
            "one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required".to_owned(),
        ));
    }
    if command.starts_with("unregister") && !words.has("id") {
        return Err(error("argument --id/-i is required".to_owned()));
    }
    let Some(bootstrap) = words.value("bootstrap-server").map_err(error)? else {
        return Err(Stop::Said("--bootstrap-controller is not spoken here: give --bootstrap-server".to_owned()));
    };
    let mut file = words.value("command-config").map_err(error)?;
    if let Some(old) = words.value("config").map_err(error)? {
        writeln!(
            desk.out,
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
        )?;
        file = Some(old);
    }
    if command.starts_with("unregister") {
        return Err(Stop::Said(format!(
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnsupportedVersionException: {command} is not spoken \
             by this client; Kafka's own kafka-cluster can be used with this broker"
        )));
    }
    let io = client_thread()?;
    let admin = Access::new(bootstrap, file).admin(&io).map_err(Stop::Said)?;
    match command {
        "cluster-id" => {
            let cluster = admin.describe_cluster().map_err(|error| Stop::Said(spelled_call(&error)))?;
            writeln!(desk.out, "Cluster ID: {}", cluster.cluster_id)?;
            Ok(())
        }
        "list-endpoints" => {
            let mut brokers = admin.describe_cluster().map_err(|error| Stop::Said(spelled_call(&error)))?.brokers;
            brokers.retain(|broker| words.has("include-fenced-brokers") || !broker.fenced);
            write!(desk.out, "{}", endpoints(&brokers))?;
            Ok(())
        }
        _ => api_versions(&admin, desk),
    }
}

fn endpoints(brokers: &[BrokerDescription]) -> String {
    let width =
        |of: fn(&BrokerDescription) -> usize, least: usize| brokers.iter().map(of).max().unwrap_or(0).max(least);
    let host = width(|broker| broker.host.len(), 9);
    let rack = width(|broker| broker.rack.as_deref().unwrap_or("null").len(), 10);
    let line = |id: &str, name: &str, port: &str, place: &str, state: &str, kind: &str| {
        format!("{id:<10} {name:<host$} {port:<10} {place:<rack$} {state:<10} {kind:<15}\n")
    };
    let mut text = line("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE");
    for broker in brokers {
        text.push_str(&line(
            &broker.id.to_string(),
            &broker.host,
            &broker.port.to_string(),
            broker.rack.as_deref().unwrap_or("null"),
            if broker.fenced { "fenced" } else { "unfenced" },
            "broker",
        ));
    }
    text
}

fn api_versions(admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Stop> {
    let told = |error: crate::client::ClientError| Stop::Said(spelled_call(&error));
    let cluster = admin.describe_cluster().map_err(told)?;
    for broker in admin.api_versions(Vec::new()).map_err(told)? {
        let known = cluster.brokers.iter().find(|one| one.id == broker.broker);
        let (address, rack, fenced) = match known {
            Some(one) => (format!("{}:{}", one.host, one.port), one.rack.clone(), one.fenced),
            None => (broker.address.clone(), None, false),
        };
        let rack = rack.unwrap_or_else(|| "null".to_owned());
        write!(desk.out, "{address} (id: {} rack: {rack} isFenced: {fenced}) -> ", broker.broker)?;
        match &broker.error {
            Some(error) => writeln!(desk.out, "ERROR: {}", message(error))?,
            None => write!(desk.out, "{}", versions(&broker))?,
        }
    }
    Ok(())
}

fn versions(broker: &BrokerApis) -> String {
    let rows: Vec<String> = broker
        .apis
        .iter()
        .map(|api| {
            let name = api.name.map_or_else(|| "UNKNOWN".to_owned(), str::to_owned);
            let range = if api.min == api.max { api.min.to_string() } else { format!("{} to {}", api.min, api.max) };
            let usable = api.usable.map_or_else(|| "unusable".to_owned(), |version| format!("usable: {version}"));
            format!("\t{name}({}): {range} [{usable}]", api.key)
        })
        .collect();
    format!("(\n{}\n)\n", rows.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::admin::ApiRange;

    #[test]
    fn endpoints_stand_in_columns() {
        let broker = BrokerDescription { id: 1, host: "127.0.0.1".to_owned(), port: 26112, rack: None, fenced: false };
        assert_eq!(
            endpoints(&[broker]),
            "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  \n\
             1          127.0.0.1 26112      null       unfenced   broker         \n"
        );
    }

    #[test]
    fn versions_are_ranges_with_the_one_in_use() {
        let api = |key, name, min, max, usable| ApiRange { key, name, min, max, usable };
        let broker = BrokerApis {
            broker: 1,
            address: "h:1".to_owned(),
            apis: vec![
                api(0, Some("Produce"), 0, 13, Some(11)),
                api(46, Some("ListPartitionReassignments"), 0, 0, Some(0)),
                api(999, None, 0, 1, None),
            ],
            error: None,
        };
        assert_eq!(
            versions(&broker),
            "(\n\tProduce(0): 0 to 13 [usable: 11],\n\tListPartitionReassignments(46): 0 [usable: 0],\n\tUNKNOWN(999): 0 to 1 \
             [unusable]\n)\n"
        );
    }
}
