//! The tables of `kafka-consumer-groups`.
//!
//! Shell, for the admin client's values it shows; does nothing but text. Owns their columns and widths: columns grow to their longest value, the last one is free. Always: a table begins with an empty
//! line and ends with its last row. Source: Kafka 4.4's ConsumerGroupCommand, asked.

use crate::cli::groups::{PartitionLag, assignment};
use crate::cli::show::or_dash;
use crate::client::admin::GroupDescription;

/// The least a column of names takes.
const NAME: usize = 15;

fn width<'v>(values: impl Iterator<Item = &'v str>, least: usize) -> usize {
    values.map(|value| value.chars().count()).max().unwrap_or(0).max(least)
}

/// `--list`: names alone, or with types and states; rows are group, type, state.
pub(super) fn listing(rows: &[[String; 3]], kinds: bool, states: bool) -> String {
    let mut text = String::new();
    if !kinds && !states {
        for [group, ..] in rows {
            text.push_str(&format!("{group}\n"));
        }
        return text;
    }
    let column = width(rows.iter().map(|[group, ..]| group.as_str()), 15) + 10;
    let mut line = |group: &str, kind: &str, state: &str| {
        text.push_str(&format!("{group:<column$}"));
        for (shown, value) in [(kinds, kind), (states, state)] {
            if shown {
                text.push_str(&format!(" {value:<20}"));
            }
        }
        text.push('\n');
    };
    line("GROUP", "TYPE", "STATE");
    for [group, kind, state] in rows {
        line(group, kind, state);
    }
    text
}

/// `--describe --offsets`
pub(super) fn offsets(group: &str, rows: &[PartitionLag], verbose: bool) -> String {
    let dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let groups = group.chars().count().max(NAME);
    let topics = width(rows.iter().map(|row| row.topic.as_str()), NAME);
    let consumers = width(rows.iter().map(|row| row.member_id.as_deref().unwrap_or("-")), NAME);
    let hosts = width(rows.iter().map(|row| row.host.as_deref().unwrap_or("-")), NAME);
    let line = |cells: [&str; 10]| {
        let [group, topic, partition, epoch, current, end, lag, consumer, host, client] = cells;
        let epoch = if verbose { format!("{epoch:<15} ") } else { String::new() };
        format!(
            "\n{group:<groups$} {topic:<topics$} {partition:<10} {epoch}{current:<15} {end:<15} {lag:<15} {consumer:<consumers$} \
             {host:<hosts$} {client}"
        )
    };
    let mut text = line([
        "GROUP",
        "TOPIC",
        "PARTITION",
        "LEADER-EPOCH",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]);
    for row in rows {
        text.push_str(&line([
            group,
            &row.topic,
            &row.partition.to_string(),
            &or_dash(row.leader_epoch),
            &or_dash(row.current_offset),
            &or_dash(row.log_end_offset),
            &or_dash(row.lag),
            &dash(&row.member_id),
            &dash(&row.host),
            &dash(&row.client_id),
        ]));
    }
    text + "\n"
}

/// `--describe --members`
pub(super) fn members(group: &GroupDescription, verbose: bool) -> String {
    let all = &group.members;
    let groups = group.group.chars().count().max(NAME);
    let consumers = width(all.iter().map(|one| one.member_id.as_str()), NAME);
    let instances = width(all.iter().filter_map(|one| one.group_instance_id.as_deref()), 17);
    let hosts = width(all.iter().map(|one| one.client_host.as_str()), NAME);
    let clients = width(all.iter().map(|one| one.client_id.as_str()), NAME);
    let with_instances = all.iter().any(|one| one.group_instance_id.is_some());
    let line = |cells: [&str; 10]| {
        let [group, consumer, instance, host, client, count, epoch, current, target_epoch, target] = cells;
        let instance = if with_instances { format!("{instance:<instances$} ") } else { String::new() };
        let more =
            if verbose { format!("{epoch:<15} {current:<20} {target_epoch:<15} {target:<20}") } else { String::new() };
        format!(
            "\n{group:<groups$} {consumer:<consumers$} {instance}{host:<hosts$} {client:<clients$} {count:<15} {more}"
        )
    };
    let mut text = line([
        "GROUP",
        "CONSUMER-ID",
        "GROUP-INSTANCE-ID",
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
        "CURRENT-EPOCH",
        "CURRENT-ASSIGNMENT",
        "TARGET-EPOCH",
        "TARGET-ASSIGNMENT",
    ]);
    for one in all {
        let assigned = if one.assignment.is_empty() { "-".to_owned() } else { assignment(&one.assignment) };
        text.push_str(&line([
            &group.group,
            &one.member_id,
            one.group_instance_id.as_deref().unwrap_or_default(),
            &one.client_host,
            &one.client_id,
            &one.assignment.len().to_string(),
            "-",
            &assigned,
            "-",
            "-",
        ]));
    }
    text + "\n"
}

/// `--describe --state`
pub(super) fn state(group: &GroupDescription, coordinator: &str, verbose: bool) -> String {
    let groups = group.group.chars().count().max(NAME);
    let coordinators = coordinator.chars().count().max(25);
    let line = |cells: [&str; 7]| {
        let [group, coordinator, strategy, state, epoch, target, members] = cells;
        let more = if verbose { format!("{epoch:<15} {target:<25} ") } else { String::new() };
        format!("\n{group:<groups$} {coordinator:<coordinators$} {strategy:<20} {state:<20} {more}{members}")
    };
    let head = line([
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]);
    let strategy = if group.assignor.is_empty() { "-" } else { &group.assignor };
    let count = group.members.len().to_string();
    let row = line([&group.group, coordinator, strategy, &group.state, "-", "-", &count]);
    format!("{head}{row}\n")
}

/// `--reset-offsets`: group, topic, partition, offset; `groups` are all that were asked for.
pub(super) fn reset(rows: &[(String, String, i32, i64)], groups: &[String]) -> String {
    let names = width(groups.iter().map(String::as_str), NAME);
    let topics = width(rows.iter().map(|(_, topic, ..)| topic.as_str()), NAME);
    let mut text = format!("\n{:<names$} {:<topics$} {:<10} NEW-OFFSET", "GROUP", "TOPIC", "PARTITION");
    for (group, topic, partition, offset) in rows {
        text.push_str(&format!("\n{group:<names$} {topic:<topics$} {partition:<10} {offset}"));
    }
    text + "\n"
}

/// `--delete-offsets`
pub(super) fn statuses(rows: &[(String, i32, String)]) -> String {
    let topics = width(rows.iter().map(|(topic, ..)| topic.as_str()), NAME);
    let mut text = format!("\n{:<topics$} {:<10} {:<15}", "TOPIC", "PARTITION", "STATUS");
    for (topic, partition, status) in rows {
        text.push_str(&format!("\n{topic:<topics$} {partition:<10} {status:<15}"));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::admin::GroupMember;

    fn lag(member: Option<&str>) -> PartitionLag {
        let text = |text: &str| member.map(|_| text.to_owned());
        PartitionLag {
            topic: "s1".to_owned(),
            partition: 0,
            current_offset: Some(4),
            leader_epoch: None,
            log_start_offset: Some(0),
            log_end_offset: Some(6),
            lag: Some(2),
            member_id: member.map(str::to_owned),
            client_id: text("console-consumer"),
            host: text("/127.0.0.1"),
            error: None,
        }
    }

    fn group(members: Vec<GroupMember>) -> GroupDescription {
        GroupDescription {
            group: "g1".to_owned(),
            state: "Empty".to_owned(),
            protocol_type: "consumer".to_owned(),
            assignor: String::new(),
            coordinator: Some(1),
            members,
            error: None,
        }
    }

    #[test]
    fn offsets_look_as_kafka_prints_them() {
        assert_eq!(
            offsets("g1", &[lag(None)], false),
            "\nGROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID\n\
             g1              s1              0          4               6               2               -               -               -\n"
        );
        assert_eq!(
            offsets("live8", &[lag(Some("h1lsnOXYT9GActJHVVevXQ"))], true),
            "\nGROUP           TOPIC           PARTITION  LEADER-EPOCH    CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID            HOST            CLIENT-ID\n\
             live8           s1              0          -               4               6               2               h1lsnOXYT9GActJHVVevXQ /127.0.0.1      console-consumer\n"
        );
    }

    #[test]
    fn members_and_states_look_as_kafka_prints_them() {
        assert_eq!(
            members(&group(Vec::new()), false),
            "\nGROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     \n"
        );
        let member = GroupMember {
            member_id: "h1lsnOXYT9GActJHVVevXQ".to_owned(),
            group_instance_id: None,
            client_id: "console-consumer".to_owned(),
            client_host: "/127.0.0.1".to_owned(),
            assignment: vec![("t1".to_owned(), 1), ("t1".to_owned(), 0)],
        };
        assert_eq!(
            members(&group(vec![member]), true),
            "\nGROUP           CONSUMER-ID            HOST            CLIENT-ID        #PARTITIONS     CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   \n\
             g1              h1lsnOXYT9GActJHVVevXQ /127.0.0.1      console-consumer 2               -               t1:0,1               -               -                   \n"
        );
        assert_eq!(
            state(&group(Vec::new()), "127.0.0.1:26112  (1)", false),
            "\nGROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS\n\
             g1              127.0.0.1:26112  (1)      -                    Empty                0\n"
        );
        assert_eq!(
            state(&group(Vec::new()), "127.0.0.1:26112  (1)", true),
            "\nGROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS\n\
             g1              127.0.0.1:26112  (1)      -                    Empty                -               -                         0\n"
        );
    }

    #[test]
    fn lists_and_resets_look_as_kafka_prints_them() {
        let row = |group: &str| [group.to_owned(), "Classic".to_owned(), "Empty".to_owned()];
        assert_eq!(listing(&[row("a")], false, false), "a\n");
        assert_eq!(
            listing(&[row("console-consumer-29181")], true, true),
            "GROUP                            TYPE                 STATE               \n\
             console-consumer-29181           Classic              Empty               \n"
        );
        assert_eq!(listing(&[], false, true), "GROUP                     STATE               \n");
        assert_eq!(
            reset(&[("g1".to_owned(), "t1".to_owned(), 5, 0)], &["g1".to_owned()]),
            "\nGROUP           TOPIC           PARTITION  NEW-OFFSET\ng1              t1              5          0\n"
        );
        assert_eq!(
            statuses(&[("t1".to_owned(), 0, "Successful".to_owned())]),
            "\nTOPIC           PARTITION  STATUS         \nt1              0          Successful     \n"
        );
    }
}
