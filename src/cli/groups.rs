//! `ringlog groups`: consumer groups, their members, and how far they have read.
//!
//! Shell: asks the cluster. Owns the subcommands and what they show; how new offsets are chosen is in `group_reset`. Always: `reset`
//! moves offsets only with `--execute`, `delete` and `delete-offsets` destroy them at once, on a terminal after a question; lag is the
//! log end minus the committed offset, and where one of the two could not be had, that is said. Source: rpk's `group`; Kafka's
//! `kafka-consumer-groups`.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use regex::Regex;
use serde::Serialize;

use super::connect::ConnectArgs;
use super::group_reset::{Move, Scope, Target, parse_scope, plan};
use super::outcome::{Destroyed, Tally, confirm, tell_destroyed, with_hint};
use super::show::{Output, OutputArgs, Table, capital, or_dash, write_json};
use super::{Failure, unix_now_ms};
use crate::client::ClientError;
use crate::client::admin::{BlockingAdmin, GroupDescription, NewCommittedOffset, OffsetSpec};

const EXAMPLES: &str = "\
Examples:
  ringlog groups list
  ringlog groups describe billing
  ringlog groups reset billing --topic orders --to @-1h --execute
  ringlog groups delete billing";

/// Lists, shows, resets and deletes consumer groups.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: GroupsCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum GroupsCommand {
    List(ListArgs),
    Describe(DescribeArgs),
    Reset(ResetArgs),
    Delete(DeleteArgs),
    DeleteOffsets(DeleteOffsetsArgs),
}

/// Lists groups.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog groups list --state stable,empty")]
struct ListArgs {
    /// Only in these states: stable, empty, dead, preparing-rebalance, completing-rebalance
    #[arg(long, value_name = "STATE,…", value_delimiter = ',')]
    state: Vec<String>,
    /// Only of these types: classic, consumer, share
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    r#type: Vec<String>,
}

/// Shows members, offsets and lag of groups.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog groups describe billing -t")]
struct DescribeArgs {
    /// Their names
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// The names are regular expressions
    #[arg(short, long)]
    regex: bool,
    /// Only the summary
    #[arg(short, long, conflicts_with_all = ["topics", "members"])]
    summary: bool,
    /// Lag by topic instead of by partition
    #[arg(short, long)]
    topics: bool,
    /// Members instead of offsets
    #[arg(short, long, conflicts_with = "topics")]
    members: bool,
}

/// Moves the committed offsets of a group without members; without --execute only shows where to.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  ringlog groups reset billing --topic orders:0,1 --to earliest --execute\n  \
                        ringlog groups reset billing --all-topics --to -10\n  ringlog groups reset billing --all-topics --to @2026-01-31T10:00 --execute")]
struct ResetArgs {
    /// The group
    group: String,
    /// A topic, or some of its partitions, as in orders or orders:0,2; may be given again
    #[arg(long = "topic", value_name = "TOPIC[:N,…]", required_unless_present = "all_topics")]
    topics: Vec<String>,
    /// Everything the group has committed offsets of
    #[arg(long, conflicts_with = "topics")]
    all_topics: bool,
    /// Where to: earliest, latest, current, an offset, +N or -N from where it is, @MOMENT
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true)]
    to: String,
    /// Do it
    #[arg(long)]
    execute: bool,
}

/// Deletes groups without members, with their offsets.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog groups delete billing --yes")]
struct DeleteArgs {
    /// Their names
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Makes a group forget its offsets of topics no member reads.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  ringlog groups delete-offsets billing --topic orders")]
struct DeleteOffsetsArgs {
    /// The group
    group: String,
    /// A topic, or some of its partitions, as in orders or orders:0,2; may be given again
    #[arg(long = "topic", value_name = "TOPIC[:N,…]", required = true)]
    topics: Vec<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Runs a subcommand.
pub(super) fn run(args: &GroupsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let GroupsArgs { connect, output: OutputArgs { output }, command } = args;
    if let GroupsCommand::Reset(args) = command {
        let target =
            Target::parse(&args.to, unix_now_ms(), &TimeZone::system()).map_err(|why| anyhow!("--to: {why}"))?;
        let scopes = args.topics.iter().map(|text| parse_scope(text)).collect::<Result<Vec<_>, _>>();
        let scopes = scopes.map_err(|why| anyhow!("--topic: {why}"))?;
        return reset(&connect.admin()?, args, target, &scopes, *output, connect, out);
    }
    let admin = connect.admin()?;
    match command {
        GroupsCommand::List(args) => list(&admin, args, *output, out),
        GroupsCommand::Describe(args) => describe(&admin, args, *output, out),
        GroupsCommand::Reset(_) => Ok(()),
        GroupsCommand::Delete(args) => delete(&admin, args, *output, out),
        GroupsCommand::DeleteOffsets(args) => delete_offsets(&admin, args, *output, out),
    }
}

/// `preparing-rebalance` as brokers call it.
fn state_name(text: &str) -> String {
    text.split(['-', '_']).map(capital).collect()
}

fn list(admin: &BlockingAdmin, args: &ListArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let states = args.state.iter().map(|state| state_name(state)).collect();
    let groups = admin.list_groups(states, args.r#type.clone())?;
    if output == Output::Json {
        write_json(out, &groups)?;
        return Ok(());
    }
    let head: &[&str] = &["GROUP", "STATE", "TYPE", "PROTOCOL", "#COORDINATOR"];
    let mut table = Table::new(&head[..if output == Output::Wide { 5 } else { 3 }]);
    for group in &groups {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let mut cells = vec![group.group.clone(), dash(&group.state), dash(&group.kind)];
        if output == Output::Wide {
            cells.extend([dash(&group.protocol_type), group.coordinator.to_string()]);
        }
        table.row(cells);
    }
    out.write_all(table.render().as_bytes())?;
    Ok(())
}

/// One partition of a group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PartitionLag {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) current_offset: Option<i64>,
    pub(super) leader_epoch: Option<i32>,
    pub(super) log_start_offset: Option<i64>,
    pub(super) log_end_offset: Option<i64>,
    pub(super) lag: Option<i64>,
    pub(super) member_id: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) host: Option<String>,
    /// Why an offset is not known that could be.
    pub(super) error: Option<String>,
}

impl PartitionLag {
    /// Nothing is known.
    fn of(topic: &str, partition: i32) -> Self {
        Self {
            topic: topic.to_owned(),
            partition,
            current_offset: None,
            leader_epoch: None,
            log_start_offset: None,
            log_end_offset: None,
            lag: None,
            member_id: None,
            client_id: None,
            host: None,
            error: None,
        }
    }
}

/// A group with its offsets.
#[derive(Clone, Debug, Serialize)]
struct Group {
    group: String,
    state: String,
    protocol_type: String,
    assignor: String,
    coordinator: Option<i32>,
    total_lag: i64,
    members: Vec<crate::client::admin::GroupMember>,
    partitions: Vec<PartitionLag>,
}

/// What a group has committed or been assigned, with the ends of those partitions; by topic and partition.
pub(super) fn lags(admin: &BlockingAdmin, group: &GroupDescription) -> Result<Vec<PartitionLag>, ClientError> {
    let mut places: BTreeMap<(String, i32), PartitionLag> = BTreeMap::new();
    for one in admin.list_group_offsets(group.group.clone(), None)? {
        let place = places
            .entry((one.topic.clone(), one.partition))
            .or_insert_with(|| PartitionLag::of(&one.topic, one.partition));
        place.current_offset = one.offset;
        place.leader_epoch = one.leader_epoch;
        place.error = one.error.map(|error| error.to_string());
    }
    for member in &group.members {
        for (topic, partition) in &member.assignment {
            let place =
                places.entry((topic.clone(), *partition)).or_insert_with(|| PartitionLag::of(topic, *partition));
            place.member_id = Some(member.member_id.clone());
            place.client_id = Some(member.client_id.clone());
            place.host = Some(member.client_host.clone());
        }
    }
    if !places.is_empty() {
        look_up_ends(admin, &mut places)?;
    }
    Ok(places.into_values().collect())
}

/// Where these partitions begin and end, and with that the lag.
fn look_up_ends(admin: &BlockingAdmin, places: &mut BTreeMap<(String, i32), PartitionLag>) -> Result<(), ClientError> {
    let ask = |spec| {
        admin.list_offsets(places.keys().map(|(topic, partition)| (topic.clone(), *partition, spec)).collect(), false)
    };
    let (starts, ends) = (ask(OffsetSpec::Earliest)?, ask(OffsetSpec::Latest)?);
    for start in starts {
        if let Some(place) = places.get_mut(&(start.topic, start.partition)) {
            place.log_start_offset = start.offset;
            place.error = place.error.take().or(start.error.map(|error| error.to_string()));
        }
    }
    for end in ends {
        if let Some(place) = places.get_mut(&(end.topic, end.partition)) {
            place.log_end_offset = end.offset;
            place.lag = end.offset.zip(place.current_offset).map(|(end, current)| end - current);
            place.error = place.error.take().or(end.error.map(|error| error.to_string()));
        }
    }
    Ok(())
}

/// The names that are meant.
fn chosen(admin: &BlockingAdmin, names: &[String], regex: bool) -> Result<Vec<String>, Failure> {
    if !regex {
        return Ok(names.to_vec());
    }
    let pattern = |name: &String| {
        Regex::new(&format!("^(?:{name})$")).map_err(|error| anyhow!("{name:?} is no regular expression: {error}"))
    };
    let patterns = names.iter().map(pattern).collect::<anyhow::Result<Vec<_>>>()?;
    let all = admin.list_groups(Vec::new(), Vec::new())?.into_iter().map(|group| group.group);
    let matching: Vec<String> = all.filter(|name| patterns.iter().any(|pattern| pattern.is_match(name))).collect();
    if matching.is_empty() {
        return Err(anyhow!("no group matches {}", names.join(" or ")).into());
    }
    Ok(matching)
}

fn describe(admin: &BlockingAdmin, args: &DescribeArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    let mut tally = Tally::default();
    let mut groups = Vec::new();
    for described in admin.describe_groups(chosen(admin, &args.groups, args.regex)?)? {
        // A group nobody knows is told as dead by older brokers.
        let unknown = described.state == "Dead" && described.members.is_empty();
        if let Some(error) = &described.error {
            tally.failed(&format!("group {}", described.group), with_hint(admin, &described.group, error));
            continue;
        }
        let partitions = lags(admin, &described)?;
        if unknown && partitions.is_empty() {
            tally.failed(&format!("group {}", described.group), "there is no such group");
            continue;
        }
        tally.done();
        for one in &partitions {
            if let Some(error) = &one.error {
                tally.failed(&format!("group {}: {}-{}", described.group, one.topic, one.partition), error);
            }
        }
        groups.push(Group {
            group: described.group,
            state: described.state,
            protocol_type: described.protocol_type,
            assignor: described.assignor,
            coordinator: described.coordinator,
            total_lag: partitions.iter().filter_map(|one| one.lag).sum(),
            members: described.members,
            partitions,
        });
    }
    if output == Output::Json {
        write_json(out, &groups)?;
        return tally.end();
    }
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        group.write(args, output == Output::Wide, out)?;
    }
    tally.end()
}

impl Group {
    fn write(&self, args: &DescribeArgs, wide: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        writeln!(out, "GROUP        {}", self.group)?;
        writeln!(out, "COORDINATOR  {}", or_dash(self.coordinator))?;
        writeln!(out, "STATE        {}", dash(&self.state))?;
        writeln!(out, "BALANCER     {}", dash(&self.assignor))?;
        writeln!(out, "MEMBERS      {}", self.members.len())?;
        writeln!(out, "TOTAL-LAG    {}", self.total_lag)?;
        if args.summary {
            return Ok(());
        }
        let mut table;
        if args.members {
            table = Table::new(&["MEMBER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "#PARTITIONS", "ASSIGNMENT"]);
            for member in &self.members {
                table.row([
                    member.member_id.clone(),
                    or_dash(member.group_instance_id.as_ref()),
                    member.client_id.clone(),
                    member.client_host.clone(),
                    member.assignment.len().to_string(),
                    assignment(&member.assignment),
                ]);
            }
        } else if args.topics {
            table = Table::new(&["TOPIC", "#PARTITIONS", "#LAG"]);
            let mut topics: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
            for one in &self.partitions {
                let (count, lag) = topics.entry(&one.topic).or_default();
                *count += 1;
                *lag += one.lag.unwrap_or(0);
            }
            for (topic, (count, lag)) in topics {
                table.row([topic.to_owned(), count.to_string(), lag.to_string()]);
            }
        } else {
            let head: &[&str] = &[
                "TOPIC",
                "#PARTITION",
                "#CURRENT-OFFSET",
                "#LOG-END-OFFSET",
                "#LAG",
                "MEMBER-ID",
                "CLIENT-ID",
                "HOST",
                "#LOG-START-OFFSET",
                "#EPOCH",
            ];
            table = Table::new(&head[..if wide { 10 } else { 8 }]);
            for one in &self.partitions {
                let mut cells = vec![
                    one.topic.clone(),
                    one.partition.to_string(),
                    or_dash(one.current_offset),
                    or_dash(one.log_end_offset),
                    or_dash(one.lag),
                    or_dash(one.member_id.as_ref()),
                    or_dash(one.client_id.as_ref()),
                    or_dash(one.host.as_ref()),
                ];
                if wide {
                    cells.extend([or_dash(one.log_start_offset), or_dash(one.leader_epoch)]);
                }
                table.row(cells);
            }
        }
        if !table.is_empty() {
            write!(out, "\n{}", table.render())?;
        }
        Ok(())
    }
}

/// `orders:0,1;payments:3`
pub(super) fn assignment(partitions: &[(String, i32)]) -> String {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    let topic = |(topic, mut partitions): (&str, Vec<i32>)| {
        partitions.sort_unstable();
        format!("{topic}:{}", super::show::joined(partitions))
    };
    topics.into_iter().map(topic).collect::<Vec<_>>().join(";")
}

/// The partitions that are meant.
fn within(admin: &BlockingAdmin, scopes: &[Scope]) -> Result<Vec<(String, i32)>, Failure> {
    let described = admin.describe_topics(scopes.iter().map(|scope| scope.topic.clone()).collect())?;
    let mut places = Vec::new();
    for (scope, topic) in
        scopes.iter().filter_map(|scope| Some((scope, described.iter().find(|one| one.name == scope.topic)?)))
    {
        if let Some(error) = &topic.error {
            return Err(anyhow!("topic {}: {}", topic.name, with_hint(admin, &topic.name, error)).into());
        }
        for asked in &scope.partitions {
            if !topic.partitions.iter().any(|one| one.partition == *asked) {
                return Err(anyhow!(
                    "topic {} has no partition {asked}: it has {}",
                    topic.name,
                    topic.partitions.len()
                )
                .into());
            }
        }
        let chosen = |partition: &i32| scope.partitions.is_empty() || scope.partitions.contains(partition);
        places.extend(
            topic.partitions.iter().map(|one| one.partition).filter(chosen).map(|one| (topic.name.clone(), one)),
        );
    }
    Ok(places)
}

fn reset(
    admin: &BlockingAdmin,
    args: &ResetArgs,
    target: Target,
    scopes: &[Scope],
    output: Output,
    connect: &ConnectArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let committed = admin.list_group_offsets(args.group.clone(), None)?;
    let places = if args.all_topics {
        committed.iter().map(|one| (one.topic.clone(), one.partition)).collect()
    } else {
        within(admin, scopes)?
    };
    if places.is_empty() {
        return Err(anyhow!("group {}: it has committed nothing; name topics with --topic", args.group).into());
    }
    let moves = plan(admin, target, &places, &committed)?;
    let tally = if args.execute { move_offsets(admin, &args.group, &moves)? } else { Tally::default() };
    write_moves(&args.group, &moves, output, out)?;
    if !args.execute {
        connect.say("only planned: nothing was changed; --execute does it");
    }
    tally.end()
}

fn move_offsets(admin: &BlockingAdmin, group: &str, moves: &[Move]) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let offsets = moves.iter().map(|one| NewCommittedOffset {
        topic: one.topic.clone(),
        partition: one.partition,
        offset: one.to,
        ..NewCommittedOffset::default()
    });
    for one in admin.alter_group_offsets(group.to_owned(), offsets.collect())? {
        match &one.error {
            None => tally.done(),
            Some(error) if error.name == "UNKNOWN_MEMBER_ID" || error.name == "NON_EMPTY_GROUP" => tally.failed(
                &format!("{}-{}", one.topic, one.partition),
                "the group has members: offsets change only while nobody reads; stop its consumers first",
            ),
            Some(error) => tally.failed(&format!("{}-{}", one.topic, one.partition), error),
        }
    }
    Ok(tally)
}

/// Where each offset is and where it is to be, done or not.
fn write_moves(group: &str, moves: &[Move], output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'l> {
        group: &'l str,
        topic: &'l str,
        partition: i32,
        current_offset: Option<i64>,
        new_offset: i64,
    }
    if output == Output::Json {
        let lines: Vec<Line<'_>> = moves
            .iter()
            .map(|one| Line {
                group,
                topic: &one.topic,
                partition: one.partition,
                current_offset: one.from,
                new_offset: one.to,
            })
            .collect();
        write_json(out, &lines)?;
    } else {
        let mut table = Table::new(&["TOPIC", "#PARTITION", "#CURRENT-OFFSET", "#NEW-OFFSET"]);
        for one in moves {
            table.row([one.topic.clone(), one.partition.to_string(), or_dash(one.from), one.to.to_string()]);
        }
        out.write_all(table.render().as_bytes())?;
    }
    Ok(())
}

fn delete(admin: &BlockingAdmin, args: &DeleteArgs, output: Output, out: &mut dyn Write) -> Result<(), Failure> {
    confirm(args.yes, &format!("Delete {} with its offsets?", args.groups.join(", ")))?;
    let outcomes = admin.delete_groups(args.groups.clone())?;
    tell_destroyed(
        admin,
        &outcomes,
        |one| Destroyed {
            name: one.group.clone(),
            what: format!("group {}", one.group),
            within: &one.group,
            error: one.error.as_ref(),
        },
        output,
        out,
    )
}

fn delete_offsets(
    admin: &BlockingAdmin,
    args: &DeleteOffsetsArgs,
    output: Output,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let scopes = args.topics.iter().map(|text| parse_scope(text)).collect::<Result<Vec<_>, _>>();
    let places = within(admin, &scopes.map_err(|why| anyhow!("--topic: {why}"))?)?;
    confirm(args.yes, &format!("Make {} forget {} offsets?", args.group, places.len()))?;
    let outcomes = admin.delete_group_offsets(args.group.clone(), places)?;
    tell_destroyed(
        admin,
        &outcomes,
        |one| {
            let name = format!("{}-{}", one.topic, one.partition);
            Destroyed { what: name.clone(), name, within: &args.group, error: one.error.as_ref() }
        },
        output,
        out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_in_small_letters() {
        assert_eq!(state_name("preparing-rebalance"), "PreparingRebalance");
        assert_eq!(state_name("stable"), "Stable");
        assert_eq!(state_name("Empty"), "Empty");
        assert_eq!(state_name("é-x"), "éX", "what is no state is for the broker to say");
        assert_eq!(state_name(""), "");
    }

    #[test]
    fn a_partition_whose_end_is_not_known_says_why() {
        crate::cli::outcome::tests::deaf_to_times(|admin| {
            let place = |partition| {
                let lag = PartitionLag { current_offset: Some(4), ..PartitionLag::of("t", partition) };
                (("t".to_owned(), partition), lag)
            };
            let mut places = [place(0), place(7)].into();
            look_up_ends(admin, &mut places).unwrap();
            let known: Vec<_> = places.values().map(|one| (one.lag, one.error.is_some())).collect();
            assert_eq!(known, [(Some(6), false), (None, true)]);
        });
    }

    #[test]
    fn assignments_are_by_topic() {
        let places = [("b".to_owned(), 1), ("a".to_owned(), 2), ("a".to_owned(), 0)];
        assert_eq!(assignment(&places), "a:0,2;b:1");
    }
}
