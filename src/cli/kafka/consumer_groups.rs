//! `kafka-consumer-groups`.
//!
//! Shell: asks the cluster. Owns the tool's flags and rules, and the actions but for resetting (`reset`); the tables are in `tables`.
//! Always: as in Kafka, a failure of an action is told on standard output and the exit code is still 0; only wrong calls end with 1.
//! Source: Kafka 4.4's ConsumerGroupCommand, asked.

mod reset;
mod tables;

use regex::Regex;

use super::exceptions::{message, refusal, spelled, spelled_call};
use super::options::{Flag, Manner, Words, maybe, switch, value};
use super::{Access, Desk, Stop, Tool, Wrong, client_thread};
use crate::cli::group_reset::{Scope, parse_scope};
use crate::cli::groups::{PartitionLag, lags};
use crate::cli::show::capital;
use crate::client::ClientError;
use crate::client::admin::{BlockingAdmin, GroupDescription};
use crate::protocol::ErrorCode;

pub(super) const TOOL: Tool = Tool {
    name: "kafka-consumer-groups",
    about: "Lists, shows and deletes consumer groups, and moves their offsets.",
    flags: FLAGS,
    manner: Manner::Plain,
    wrong: Wrong::After("Exception in thread \"main\" joptsimple.UnrecognizedOptionException: "),
    run,
};

const FLAGS: &[Flag] = &[
    switch("all-groups", "Every consumer group."),
    switch("all-topics", "With --reset-offsets: every topic the group has offsets of."),
    value("bootstrap-server", "host:port,…", "REQUIRED (but for --validate-regex): brokers to connect to."),
    value("by-duration", "PnDTnHnMnS", "Reset to the first record younger than that."),
    value("command-config", "file", "A properties file with settings of the client."),
    switch("delete", "Delete groups that have no members, with their offsets."),
    switch("delete-offsets", "Make a group forget its offsets of topics."),
    switch("describe", "Show groups with their offsets and lag."),
    switch("dry-run", "With --reset-offsets: only show what would be (the default)."),
    switch("execute", "With --reset-offsets: do it."),
    switch("export", "With --reset-offsets: show it as CSV."),
    value("from-file", "file", "Reset to the offsets of a CSV file."),
    value("group", "id", "The group; may be given again."),
    switch("help", "Show this page."),
    switch("list", "List consumer groups."),
    switch("members", "With --describe: the members."),
    switch("offsets", "With --describe: the offsets (the default)."),
    switch("reset-offsets", "Move the offsets of groups without members."),
    value("shift-by", "n", "Reset by so many records, forward or (negative) back."),
    maybe(
        "state",
        "states",
        "With --describe: the state; with --list: states beside the names, or only groups in these.",
    ),
    value("timeout", "ms", "How long to wait (default: 30000)."),
    switch("to-current", "Reset to where the offsets are."),
    value("to-datetime", "YYYY-MM-DDThh:mm:ss.sss", "Reset to the first record as late as that."),
    switch("to-earliest", "Reset to the log start."),
    switch("to-latest", "Reset to the end."),
    value("to-offset", "offset", "Reset to that offset."),
    value("topic", "topic[:0,1,…]", "A topic, or some of its partitions; may be given again."),
    maybe("type", "types", "With --list: types beside the names, or only groups of these."),
    value("validate-regex", "regex", "Say whether a regular expression for subscriptions is valid."),
    switch("verbose", "With --describe: more columns."),
    switch("version", "Show whose output is spoken."),
];

const ACTIONS: &[&str] = &["list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex"];
const SCENARIOS: &[&str] =
    &["from-file", "shift-by", "to-offset", "to-earliest", "to-current", "to-latest", "by-duration", "to-datetime"];
const STATES: &[&str] =
    &["Dead", "Empty", "PreparingRebalance", "Assigning", "CompletingRebalance", "Stable", "Reconciling"];

/// Why an action ends: told on standard output, with exit code 0.
enum Failed {
    /// Behind `Error: Executing consumer group command failed due to `.
    Because(String),
    /// The arguments.
    Usage(String),
    Io(std::io::Error),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        Self::Because(spelled_call(&error))
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

fn run(words: &Words, desk: &mut Desk<'_>) -> Result<(), Stop> {
    check(words)?;
    if let Some(text) = words.value("validate-regex").map_err(Stop::Said)? {
        match Regex::new(text) {
            Ok(_) => writeln!(desk.out, "The regular expression `{text}` is valid.")?,
            Err(error) => {
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                writeln!(desk.out, "The regular expression `{text}` is invalid: {why}.")?;
            }
        }
        return Ok(());
    }
    let io = client_thread()?;
    let bootstrap = words.value("bootstrap-server").map_err(Stop::Said)?.unwrap_or_default();
    let access = Access::new(bootstrap, words.value("command-config").map_err(Stop::Said)?);
    let done = match access.admin(&io) {
        Err(why) => {
            let (first, rest) = why.split_once('\n').unwrap_or((&why, ""));
            if !rest.is_empty() {
                eprintln!("{rest}");
            }
            Err(Failed::Because(first.to_owned()))
        }
        Ok(admin) => match words.number::<u64>("timeout").map_err(Stop::Said)? {
            Some(ms) => act(words, &admin.within(std::time::Duration::from_millis(ms.max(1000))), desk),
            None => act(words, &admin, desk),
        },
    };
    match done {
        Ok(()) => Ok(()),
        Err(Failed::Because(why)) => {
            writeln!(desk.out, "\nError: Executing consumer group command failed due to {why}")?;
            Ok(())
        }
        Err(Failed::Usage(why)) => Err(Stop::Usage(why)),
        Err(Failed::Io(error)) => Err(Stop::Io(error)),
    }
}

fn act(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    if words.has("list") {
        list(words, admin, desk)
    } else if words.has("describe") {
        describe(words, admin, desk)
    } else if words.has("delete") {
        delete(words, admin, desk)
    } else if words.has("delete-offsets") {
        delete_offsets(words, admin, desk)
    } else {
        reset::run(words, admin, desk)
    }
}

fn bracketed(names: &[&str]) -> String {
    names.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", ")
}

fn check(words: &Words) -> Result<(), Stop> {
    check_companions(words)?;
    if ACTIONS.iter().filter(|name| words.has(name)).count() != 1 {
        let actions: Vec<String> = ACTIONS.iter().map(|name| format!("--{name}")).collect();
        return Err(Stop::Usage(format!("Command must include exactly one action: {}.", actions.join(", "))));
    }
    if !words.has("validate-regex") {
        words.require(&["bootstrap-server"]).map_err(Stop::Usage)?;
    }
    if words.has("describe") {
        check_describe(words).map_err(Stop::Usage)?;
    }
    if words.has("delete") {
        check_delete(words).map_err(Stop::Usage)?;
    }
    if words.has("delete-offsets") && !(words.has("group") && words.has("topic")) {
        let wanted = bracketed(&["topic", "group"]);
        return Err(Stop::Usage(format!("Option [delete-offsets] takes the following options: {wanted}")));
    }
    if words.has("reset-offsets") {
        check_reset(words).map_err(Stop::Usage)?;
    }
    words.refuse_beside("group", &["all-groups"]).map_err(Stop::Usage)
}

/// Options that mean something only beside certain actions; Kafka looks at them first.
fn check_companions(words: &Words) -> Result<(), Stop> {
    for (name, with) in [
        ("members", &["describe"][..]),
        ("offsets", &["describe"]),
        ("verbose", &["describe"]),
        ("state", &["describe", "list"]),
        ("type", &["list"]),
    ] {
        if words.has(name) && !with.iter().any(|action| words.has(action)) {
            return Err(Stop::Said(format!(
                "Exception in thread \"main\" joptsimple.UnavailableOptionException: Option(s) [{name}] are unavailable given other \
                 options on the command line"
            )));
        }
    }
    Ok(())
}

/// Refuses `action` without a word of which groups.
fn require_groups(words: &Words, action: &str) -> Result<(), String> {
    match words.has("group") || words.has("all-groups") {
        true => Ok(()),
        false => Err(format!("Option [{action}] takes one of these options: {}", bracketed(&["all-groups", "group"]))),
    }
}

fn check_describe(words: &Words) -> Result<(), String> {
    require_groups(words, "describe")?;
    let kinds = ["members", "offsets", "state"];
    if kinds.iter().filter(|name| words.has(name)).count() > 1 {
        return Err(format!("Option [describe] takes at most one of these options: {}", bracketed(&kinds)));
    }
    if words.values("state").next().is_some() {
        return Err("Option [describe] does not take a value for [state]".to_owned());
    }
    Ok(())
}

fn check_delete(words: &Words) -> Result<(), String> {
    require_groups(words, "delete")?;
    if words.has("topic") {
        return Err("The consumer does not support topic-specific offset deletion from a consumer group.".to_owned());
    }
    Ok(())
}

fn check_reset(words: &Words) -> Result<(), String> {
    if words.has("dry-run") && words.has("execute") {
        return Err("Option [reset-offsets] only accepts one of [execute] and [dry-run]".to_owned());
    }
    if !words.has("dry-run") && !words.has("execute") {
        eprintln!(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require either \
             --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting this \
             command and want to keep the current default behavior without prompting."
        );
    }
    require_groups(words, "reset-offsets")?;
    // In the order Kafka looks at them.
    for scenario in
        ["to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "to-current", "from-file"]
    {
        words.refuse_beside(scenario, SCENARIOS)?;
    }
    if !SCENARIOS.iter().any(|name| words.has(name)) {
        let wanted = bracketed(SCENARIOS);
        return Err(format!("Option '[reset-offsets]' requires one of the following scenarios: [{wanted}]"));
    }
    if !["topic", "all-topics", "from-file"].iter().any(|name| words.has(name)) {
        return Err("One of the reset scopes should be defined: --all-topics, --topic.".to_owned());
    }
    words.refuse_beside("topic", &["all-topics"])
}

/// The names of all consumer groups; those of other protocols are not this tool's.
fn all_groups(admin: &BlockingAdmin) -> Result<Vec<String>, Failed> {
    Ok(consumer_groups(admin, Vec::new())?.into_iter().map(|group| group.group).collect())
}

fn consumer_groups(
    admin: &BlockingAdmin,
    states: Vec<String>,
) -> Result<Vec<crate::client::admin::GroupListing>, ClientError> {
    let mut groups = admin.list_groups(states, Vec::new())?;
    groups.retain(|group| group.protocol_type.is_empty() || group.protocol_type == "consumer");
    Ok(groups)
}

fn chosen(words: &Words, admin: &BlockingAdmin) -> Result<Vec<String>, Failed> {
    if words.has("all-groups") { all_groups(admin) } else { Ok(words.values("group").map(str::to_owned).collect()) }
}

fn list(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let mut states = Vec::new();
    if let Some(text) = words.value("state").map_err(Failed::Usage)? {
        for word in text.split(',').map(str::trim) {
            let known = STATES.iter().find(|state| state.eq_ignore_ascii_case(word));
            let known = known.ok_or_else(|| {
                Failed::Usage(format!("Invalid state list '{text}'. Valid states are: {}", STATES.join(", ")))
            })?;
            states.push((*known).to_owned());
        }
    }
    let mut kinds = Vec::new();
    if let Some(text) = words.value("type").map_err(Failed::Usage)? {
        for word in text.split(',').map(str::trim) {
            if !["classic", "consumer"].contains(&word.to_ascii_lowercase().as_str()) {
                return Err(Failed::Usage(format!("Invalid types list '{text}'. Valid types are: Classic, Consumer")));
            }
            kinds.push(word.to_ascii_lowercase());
        }
    }
    let mut groups = consumer_groups(admin, states)?;
    groups.retain(|group| kinds.is_empty() || kinds.contains(&group.kind.to_ascii_lowercase()));
    let rows: Vec<[String; 3]> =
        groups.into_iter().map(|group| [group.group, capital(&group.kind), capital(&group.state)]).collect();
    write!(desk.out, "{}", tables::listing(&rows, words.has("type"), words.has("state")))?;
    Ok(())
}

/// A group that is there. Errors: as Kafka says it.
fn found(described: GroupDescription) -> Result<GroupDescription, Failed> {
    let group = &described.group;
    match &described.error {
        Some(error) => Err(Failed::Because(spelled(error))),
        None if described.state == "Dead" => Err(Failed::Because(format!(
            "org.apache.kafka.common.errors.GroupIdNotFoundException: Group {group} not found."
        ))),
        None => Ok(described),
    }
}

fn tell_state(group: &str, state: &str) {
    match state {
        "Empty" => eprintln!("\nConsumer group '{group}' has no active members."),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            eprintln!("\nWarning: Consumer group '{group}' is rebalancing.");
        }
        "Dead" => eprintln!("\nConsumer group '{group}' does not exist."),
        _ => {}
    }
}

fn describe(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let names = chosen(words, admin)?;
    if names.is_empty() {
        return Ok(());
    }
    let verbose = words.has("verbose");
    let described = admin.describe_groups(names)?.into_iter().map(found).collect::<Result<Vec<_>, _>>()?;
    if words.has("members") {
        for group in &described {
            tell_state(&group.group, &group.state);
            desk.out.write_all(tables::members(group, verbose).as_bytes())?;
        }
        return Ok(());
    }
    if words.has("state") {
        let brokers = admin.describe_cluster()?.brokers;
        for group in &described {
            tell_state(&group.group, &group.state);
            let broker = brokers.iter().find(|broker| Some(broker.id) == group.coordinator);
            let coordinator =
                broker.map_or_else(|| "-".to_owned(), |one| format!("{}:{}  ({})", one.host, one.port, one.id));
            desk.out.write_all(tables::state(group, &coordinator, verbose).as_bytes())?;
        }
        return Ok(());
    }
    for group in &described {
        let lags = lags(admin, group)?;
        tell_state(&group.group, &group.state);
        if !lags.is_empty() {
            desk.out.write_all(tables::offsets(&group.group, &in_order(group, lags), verbose).as_bytes())?;
        }
    }
    Ok(())
}

/// Members with most partitions first, then what nobody reads.
fn in_order(group: &GroupDescription, mut lags: Vec<PartitionLag>) -> Vec<PartitionLag> {
    let share = |lag: &PartitionLag| {
        let member = group.members.iter().position(|member| Some(&member.member_id) == lag.member_id.as_ref());
        match member {
            Some(index) => (0, std::cmp::Reverse(group.members[index].assignment.len()), index),
            None => (1, std::cmp::Reverse(0), 0),
        }
    };
    lags.sort_by_key(share);
    lags
}

fn delete(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let names = chosen(words, admin)?;
    let outcomes = if names.is_empty() { Vec::new() } else { admin.delete_groups(names)? };
    let quoted = |names: Vec<&str>| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let done: Vec<&str> = outcomes.iter().filter(|one| one.error.is_none()).map(|one| one.group.as_str()).collect();
    if done.len() == outcomes.len() {
        writeln!(desk.out, "Deletion of requested consumer groups ({}) was successful.", quoted(done))?;
        return Ok(());
    }
    writeln!(desk.out, "\nError: Deletion of some consumer groups failed:")?;
    for one in &outcomes {
        if let Some(error) = &one.error {
            writeln!(desk.out, "* Group '{}' could not be deleted due to: {}", one.group, spelled(error))?;
        }
    }
    if !done.is_empty() {
        writeln!(desk.out, "\nThese consumer groups were deleted successfully: {}", quoted(done))?;
    }
    Ok(())
}

/// `--topic` as it was given.
fn scopes(words: &Words) -> Result<Vec<Scope>, Failed> {
    let scope = |text: &str| {
        // As Java splits: colons at the end part nothing.
        if text.contains(':') && text.trim_end_matches(':').split(':').count() != 2 {
            return Err(Failed::Usage(format!("Invalid topic arg '{text}', expected topic name and partitions")));
        }
        parse_scope(text).map_err(|_| {
            let wrong = text.split_once(':').map_or("", |(_, list)| list);
            let wrong = wrong.split(',').find(|word| word.parse::<i32>().is_err()).unwrap_or(wrong);
            Failed::Usage(format!("Invalid partition '{wrong}' specified in topic arg '{text}''"))
        })
    };
    words.values("topic").map(scope).collect()
}

/// The partitions those topics have, or those that were named. Errors: one is not there.
fn partitions(admin: &BlockingAdmin, scopes: &[Scope]) -> Result<Vec<(String, i32)>, Failed> {
    let topics = admin.describe_topics(scopes.iter().map(|scope| scope.topic.clone()).collect())?;
    let (mut places, mut missing) = (Vec::new(), Vec::new());
    for scope in scopes {
        let Some(topic) = topics.iter().find(|topic| topic.name == scope.topic) else { continue };
        if let Some(error) = &topic.error {
            match ErrorCode(error.code) {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION if !scope.partitions.is_empty() => {
                    missing.extend(scope.partitions.iter().map(|one| format!("{}-{one}", scope.topic)));
                }
                _ => return Err(Failed::Because(spelled(error))),
            }
            continue;
        }
        let there = |partition: i32| topic.partitions.iter().any(|one| one.partition == partition);
        match scope.partitions.is_empty() {
            true => places.extend(topic.partitions.iter().map(|one| (topic.name.clone(), one.partition))),
            false => {
                for partition in &scope.partitions {
                    match there(*partition) {
                        true => places.push((topic.name.clone(), *partition)),
                        false => missing.push(format!("{}-{partition}", scope.topic)),
                    }
                }
            }
        }
    }
    match missing.is_empty() {
        true => Ok(places),
        false => Err(Failed::Because(format!("The partitions \"{}\" do not exist", missing.join(",")))),
    }
}

fn delete_offsets(words: &Words, admin: &BlockingAdmin, desk: &mut Desk<'_>) -> Result<(), Failed> {
    let group = words.value("group").map_err(Failed::Usage)?.unwrap_or_default();
    let scopes = scopes(words)?;
    let places = partitions(admin, &scopes)?;
    let statuses: Vec<(String, i32, String)> = match admin.delete_group_offsets(group.to_owned(), places.clone()) {
        Ok(outcomes) => {
            match outcomes.iter().all(|one| one.error.is_none()) {
                true => writeln!(desk.out, "Request succeeded for deleting offsets from group {group}.")?,
                false => {
                    // What is wrong with the group is wrong with each of its partitions.
                    let of_group = outcomes.iter().find_map(|one| {
                        one.error.as_ref().filter(|error| ErrorCode(error.code) != ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC)
                    });
                    match of_group.filter(|error| error.code == ErrorCode::GROUP_ID_NOT_FOUND.0) {
                        Some(error) => writeln!(desk.out, "\nError: {}", message(error))?,
                        None => writeln!(
                            desk.out,
                            "\nError: Encountered some partition-level error, see the follow-up details."
                        )?,
                    }
                }
            }
            let status = |error: Option<String>| {
                error.map_or_else(|| "Successful".to_owned(), |error| format!("Error: {error}"))
            };
            outcomes
                .into_iter()
                .map(|one| (one.topic, one.partition, status(one.error.as_ref().map(spelled))))
                .collect()
        }
        Err(error) if error.code().is_some() => {
            writeln!(desk.out, "\nError: {}", message(&refusal(&error)))?;
            let status = format!("Error: {}", spelled_call(&error));
            places.into_iter().map(|(topic, partition)| (topic, partition, status.clone())).collect()
        }
        Err(error) => return Err(error.into()),
    };
    write!(desk.out, "{}", tables::statuses(&statuses))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::kafka::tests;

    fn checked(line: &str) -> Result<(), String> {
        tests::checked(&TOOL, line, |words, _| check(words))
    }

    #[test]
    fn contradictions_are_told_in_the_tools_words() {
        for (line, wanted) in [
            ("--list", "Missing required argument \"[bootstrap-server]\""),
            (
                "--bootstrap-server h:1 --describe",
                "Option [describe] takes one of these options: [all-groups], [group]",
            ),
            (
                "--bootstrap-server h:1 --describe --group g --all-groups",
                "Option \"[group]\" can't be used with option \"[all-groups]\"",
            ),
            (
                "--bootstrap-server h:1 --describe --group g --members --state",
                "Option [describe] takes at most one of these options: [members], [offsets], [state]",
            ),
            ("--bootstrap-server h:1 --delete", "Option [delete] takes one of these options: [all-groups], [group]"),
            (
                "--bootstrap-server h:1 --delete --group g --topic t",
                "The consumer does not support topic-specific offset deletion from a consumer group.",
            ),
            (
                "--bootstrap-server h:1 --delete-offsets --group g",
                "Option [delete-offsets] takes the following options: [topic], [group]",
            ),
            (
                "--bootstrap-server h:1 --reset-offsets --group g --topic t --to-current --execute --dry-run",
                "Option [reset-offsets] only accepts one of [execute] and [dry-run]",
            ),
            (
                "--bootstrap-server h:1 --reset-offsets --group g --topic t --to-current --to-latest --dry-run",
                "Option \"[to-latest]\" can't be used with option \"[to-current]\"",
            ),
            (
                "--bootstrap-server h:1 --reset-offsets --group g --to-current --dry-run",
                "One of the reset scopes should be defined: --all-topics, --topic.",
            ),
            (
                "--bootstrap-server h:1 --reset-offsets --group g --topic t --dry-run",
                "Option '[reset-offsets]' requires one of the following scenarios: [[from-file], [shift-by], [to-offset], [to-earliest], \
                 [to-current], [to-latest], [by-duration], [to-datetime]]",
            ),
            (
                "--bootstrap-server h:1 --list --members",
                "Exception in thread \"main\" joptsimple.UnavailableOptionException: Option(s) [members] are unavailable given other \
                 options on the command line",
            ),
        ] {
            assert_eq!(checked(line).unwrap_err(), wanted, "{line}");
        }
        assert_eq!(checked("--bootstrap-server h:1 --list --state"), Ok(()));
        assert_eq!(checked("--validate-regex a"), Ok(()));
    }
}
