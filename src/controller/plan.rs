//! What each admin command would write: records, or why not.
//!
//! Pure: ids come in as a parameter. Owns the rules for topics and Kafka's words for what breaks them. Does not own the checks of
//! config values (`config`) nor who may ask. Always: the records of a plan replay on the image they were planned on. Source:
//! Kafka 4.4's `ReplicationControlManager` and `ControllerApis`, asked of a running broker; KIP-516 (ids).

use std::collections::{BTreeMap, BTreeSet};

use super::command::{CommandError, ConfigEdit, ConfigEdits, CreatedTopic, NewTopic, TopicRef};
use super::image::{DirectoryId, Image, PartitionRecord, Record, TopicImage};
use crate::config::{BrokerSettings, Kind, is_internal_topic, topic_row};
use crate::types::TopicId;

/// The longest topic name: Kafka keeps room for `-<partition>` and a suffix in a file name of 255 bytes.
const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Most partitions one request may make: each is a directory and several files, all made before the answer.
const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;
/// The longest config value, as the wire of Kafka's controller has it.
const CONFIG_VALUE_BYTES_MAX: usize = 32_767;
/// Producer ids handed out at once; each block is one committed record.
pub(super) const PRODUCER_ID_BLOCK: i64 = 1000;

const GROUP_OFFSETS_TOPIC: &str = "__consumer_offsets";
const METADATA_TOPIC: &str = "__cluster_metadata";

/// The records of a command and what to answer item by item. The records of refused items are left out.
pub(super) struct Plan<T> {
    pub(super) records: Vec<Record>,
    pub(super) answers: Vec<Result<T, CommandError>>,
}

/// Topics to make. As in Kafka, two of one request may collide with each other, but not with those that are there.
pub(super) fn plan_create_topics(
    image: &Image,
    settings: &BrokerSettings,
    topics: &[NewTopic],
    mut new_id: impl FnMut() -> TopicId,
) -> Plan<CreatedTopic> {
    let repeated = repeated(topics.iter().map(|topic| topic.name.as_str()));
    let asked: i64 = topics.iter().map(|topic| asked_partitions(topic, settings)).sum();
    let mut places = Places::of(image);
    let mut plan = Plan { records: Vec::new(), answers: Vec::new() };
    for topic in topics {
        let answer = if repeated.contains(topic.name.as_str()) {
            Err(CommandError::InvalidRequest("Duplicate topic name.".to_owned()))
        } else if topic.name == METADATA_TOPIC {
            Err(CommandError::InvalidRequest(format!("Creation of internal topic {METADATA_TOPIC} is prohibited.")))
        } else if asked > PARTITIONS_PER_REQUEST_MAX {
            Err(CommandError::PolicyViolation("Excessively large number of partitions per request.".to_owned()))
        } else {
            plan_create_topic(image, settings, topic, &mut places, &mut new_id)
        };
        let answer = answer.map(|(created, record)| {
            plan.records.push(record);
            created
        });
        plan.answers.push(answer);
    }
    plan
}

fn plan_create_topic(
    image: &Image,
    settings: &BrokerSettings,
    topic: &NewTopic,
    places: &mut Places,
    new_id: &mut impl FnMut() -> TopicId,
) -> Result<(CreatedTopic, Record), CommandError> {
    check_name(&topic.name)?;
    if image.topics.contains_key(topic.name.as_str()) {
        return Err(CommandError::TopicExists(topic.name.clone()));
    }
    if let Some(other) = colliding(&topic.name, image.topics.keys().map(|name| &**name)) {
        let message = format!("Topic '{}' collides with existing topic: {other}", topic.name);
        return Err(CommandError::InvalidTopic(message));
    }
    let configs = new_configs(settings, &topic.configs)?;
    let assignment = assign(image, settings, topic)?;
    let (partitions, replicas) = (assignment.len(), assignment[0].len());
    let id = new_id();
    let record = Record::Topic {
        id: id.to_string(),
        name: topic.name.clone(),
        partitions: places.place(assignment),
        configs: configs.clone(),
        internal: is_internal_topic(&topic.name),
    };
    let created = CreatedTopic {
        id,
        partitions: i32::try_from(partitions).expect("a request makes at most ten thousand"),
        replication_factor: i16::try_from(replicas).expect("no more replicas than brokers"),
        configs,
    };
    Ok((created, record))
}

/// Kafka's rules for a topic's name.
fn check_name(name: &str) -> Result<(), CommandError> {
    let why = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if matches!(name, "." | "..") {
        format!("'{name}' is not allowed")
    } else if name.len() > TOPIC_NAME_BYTES_MAX {
        format!("the length of '{name}' is longer than the max allowed length {TOPIC_NAME_BYTES_MAX}")
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(CommandError::InvalidTopic(format!("Topic name is invalid: {why}")))
}

/// A name that metric names cannot tell from `name`, because they write both `.` and `_` as `_`.
fn colliding<'a>(name: &str, mut taken: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let same = |(left, right): (u8, u8)| left == right || (b"._".contains(&left) && b"._".contains(&right));
    taken.find(|other| *other != name && other.len() == name.len() && other.bytes().zip(name.bytes()).all(same))
}

fn new_configs(
    settings: &BrokerSettings,
    given: &[(String, Option<String>)],
) -> Result<BTreeMap<String, String>, CommandError> {
    let mut configs = BTreeMap::new();
    let mut nulls = Vec::new();
    for (name, value) in given {
        match value {
            Some(value) => _ = configs.insert(name.clone(), value.clone()),
            None => nulls.push(name.as_str()),
        }
    }
    if !nulls.is_empty() {
        let message = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err(CommandError::InvalidConfig(message));
    }
    check_configs(settings, &configs)?;
    Ok(configs)
}

fn check_configs(settings: &BrokerSettings, configs: &BTreeMap<String, String>) -> Result<(), CommandError> {
    if let Some((name, _)) = configs.iter().find(|(_, value)| value.len() > CONFIG_VALUE_BYTES_MAX) {
        let message = format!(
            "The configuration value of {name} cannot be added because it exceeds the maximum value size of {CONFIG_VALUE_BYTES_MAX} bytes."
        );
        return Err(CommandError::InvalidConfig(message));
    }
    settings.check_topic_configs(configs).map_err(CommandError::InvalidConfig)
}

/// How many partitions a topic asks for; nonsense counts as none, it is refused later.
fn asked_partitions(topic: &NewTopic, settings: &BrokerSettings) -> i64 {
    match topic.partitions {
        -1 if topic.assignment.is_empty() => i64::from(settings.num_partitions),
        -1 => topic.assignment.len() as i64,
        count => i64::from(count.max(0)),
    }
}

/// Brokers of each partition.
fn assign(image: &Image, settings: &BrokerSettings, topic: &NewTopic) -> Result<Vec<Vec<i32>>, CommandError> {
    if !topic.assignment.is_empty() {
        return assign_by_hand(image, topic);
    }
    let replicas = match topic.replication_factor {
        -1 => settings.default_replication_factor,
        count @ 1.. => count,
        _ => {
            let message = "Replication factor must be larger than 0, or -1 to use the default value.";
            return Err(CommandError::InvalidReplicationFactor(message.to_owned()));
        }
    };
    let partitions = match topic.partitions {
        -1 => settings.num_partitions as usize,
        count @ 1.. => count as usize,
        _ => {
            let message = "Number of partitions was set to an invalid non-positive value.";
            return Err(CommandError::InvalidPartitions(message.to_owned()));
        }
    };
    assign_evenly(image, 0..partitions, replicas)
}

/// Spreads replicas over the brokers in turn, the first of each partition one further than the partition before.
fn assign_evenly(
    image: &Image,
    partitions: std::ops::Range<usize>,
    replicas: i16,
) -> Result<Vec<Vec<i32>>, CommandError> {
    let brokers = &image.brokers;
    let replicas = usize::try_from(replicas).expect("counts below one were refused");
    if replicas > brokers.len() {
        let count = brokers.len();
        return Err(CommandError::InvalidReplicationFactor(format!(
            "Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} cannot be reached \
             because only {count} broker(s) are registered or some brokers have all their log directories cordoned."
        )));
    }
    let replica = |partition: usize, replica: usize| brokers[(partition + replica) % brokers.len()].id.value();
    Ok(partitions.map(|partition| (0..replicas).map(|index| replica(partition, index)).collect()).collect())
}

fn assign_by_hand(image: &Image, topic: &NewTopic) -> Result<Vec<Vec<i32>>, CommandError> {
    for (given, what) in
        [(topic.replication_factor != -1, "replication factor"), (topic.partitions != -1, "numPartitions")]
    {
        if given {
            let message = format!("A manual partition assignment was specified, but {what} was not set to -1.");
            return Err(CommandError::InvalidRequest(message));
        }
    }
    let refuse = |why: String| Err(CommandError::InvalidReplicaAssignment(why));
    let mut by_index: BTreeMap<i32, &Vec<i32>> = BTreeMap::new();
    for (partition, brokers) in &topic.assignment {
        if by_index.insert(*partition, brokers).is_some() {
            return refuse(format!("Found multiple manual partition assignments for partition {partition}"));
        }
        if brokers.is_empty() {
            return refuse("The manual partition assignment includes an empty replica list.".to_owned());
        }
        let mut seen = BTreeSet::new();
        for broker in brokers {
            if !image.brokers.iter().any(|known| known.id.value() == *broker) {
                let why = format!(
                    "The manual partition assignment includes broker {broker}, but no such broker is registered."
                );
                return refuse(why);
            }
            if !seen.insert(broker) {
                return refuse(format!("The manual partition assignment includes the broker {broker} more than once."));
            }
        }
        let first = topic.assignment[0].1.len();
        if brokers.len() != first {
            return refuse(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this is not consistent with previous \
                 partitions, which have {first} replica(s).",
                brokers.len()
            ));
        }
    }
    if !by_index.keys().copied().eq(0..by_index.len() as i32) {
        return refuse("partitions should be a consecutive 0-based integer sequence".to_owned());
    }
    Ok(by_index.into_values().cloned().collect())
}

/// How many partitions lie in each directory; new ones go where the fewest are.
struct Places {
    counts: Vec<(usize, DirectoryId)>,
}

impl Places {
    fn of(image: &Image) -> Self {
        let mut counts: Vec<(usize, DirectoryId)> = image.directories().iter().map(|id| (0, id.clone())).collect();
        for partition in image.topics.values().flat_map(|topic| &topic.partitions) {
            counts[partition.log_dir].0 += 1;
        }
        Self { counts }
    }

    fn place(&mut self, assignment: Vec<Vec<i32>>) -> Vec<PartitionRecord> {
        let place = |replicas: Vec<i32>| {
            let emptiest =
                self.counts.iter_mut().min_by_key(|(count, _)| *count).expect("a broker has a data directory");
            emptiest.0 += 1;
            PartitionRecord {
                leader: replicas[0],
                leader_epoch: 0,
                partition_epoch: 0,
                isr: replicas.clone(),
                replicas,
                directory: emptiest.1.clone(),
            }
        };
        assignment.into_iter().map(place).collect()
    }
}

/// Topics to delete: the name and id of each.
pub(super) fn plan_delete_topics(
    image: &Image,
    settings: &BrokerSettings,
    topics: &[TopicRef],
) -> Plan<(String, TopicId)> {
    let mut plan = Plan { records: Vec::new(), answers: Vec::new() };
    let mut gone: BTreeSet<TopicId> = BTreeSet::new();
    for topic in topics {
        let answer =
            if settings.delete_topic_enable { find(image, topic) } else { Err(CommandError::DeletionDisabled) };
        let answer = answer.and_then(|topic| {
            if !gone.insert(topic.id) {
                return Err(CommandError::InvalidRequest("Duplicate topic name.".to_owned()));
            }
            plan.records.push(Record::TopicGone { topic: topic.id.to_string() });
            Ok((topic.name.to_string(), topic.id))
        });
        plan.answers.push(answer);
    }
    plan
}

fn find<'a>(image: &'a Image, topic: &TopicRef) -> Result<&'a TopicImage, CommandError> {
    let found = match topic {
        TopicRef::Name(name) => image.topics.get(name.as_str()).ok_or_else(unknown_topic),
        TopicRef::Id(id) => image
            .topic_by_id(*id)
            .ok_or_else(|| CommandError::UnknownTopicId("This server does not host this topic ID.".to_owned())),
    };
    found.map(|topic| &**topic)
}

fn unknown_topic() -> CommandError {
    CommandError::UnknownTopic("This server does not host this topic-partition.".to_owned())
}

/// Topics that shall have so many partitions in all.
pub(super) fn plan_create_partitions(image: &Image, topics: &[(String, i32)]) -> Plan<()> {
    let repeated = repeated(topics.iter().map(|(name, _)| name.as_str()));
    let more = |(name, total): &(String, i32)| {
        let have = image.topics.get(name.as_str()).map_or(0, |topic| topic.partitions.len() as i64);
        (i64::from(*total) - have).max(0)
    };
    let asked: i64 = topics.iter().map(more).sum();
    let mut places = Places::of(image);
    let mut plan = Plan { records: Vec::new(), answers: Vec::new() };
    for (name, total) in topics {
        let answer = if repeated.contains(name.as_str()) {
            Err(CommandError::InvalidRequest("Duplicate topic name.".to_owned()))
        } else {
            plan_more_partitions(image, name, *total, asked, &mut places)
        };
        plan.answers.push(answer.map(|record| plan.records.push(record)));
    }
    plan
}

fn plan_more_partitions(
    image: &Image,
    name: &str,
    total: i32,
    asked: i64,
    places: &mut Places,
) -> Result<Record, CommandError> {
    let topic = image.topics.get(name).ok_or_else(unknown_topic)?;
    let have = topic.partitions.len();
    let wanted = usize::try_from(total).unwrap_or(0);
    if wanted == have {
        return Err(CommandError::InvalidPartitions(format!("Topic already has {have} partition(s).")));
    }
    if wanted < have {
        let message = format!("The topic {name} currently has {have} partition(s); {total} would not be an increase.");
        return Err(CommandError::InvalidPartitions(message));
    }
    if asked > PARTITIONS_PER_REQUEST_MAX {
        let message = "Excessively large number of additional partitions per request.";
        return Err(CommandError::PolicyViolation(message.to_owned()));
    }
    let replicas = i16::try_from(topic.partitions[0].replicas.len()).expect("no more replicas than brokers");
    let added = places.place(assign_evenly(image, have..wanted, replicas)?);
    Ok(Record::Partitions { topic: topic.id.to_string(), added })
}

/// A topic's overrides after these edits, all or nothing. Values are judged before it is said that there is no such topic.
pub(super) fn plan_alter_topic_configs(
    image: &Image,
    settings: &BrokerSettings,
    topic: &str,
    edits: &ConfigEdits,
) -> Result<Option<Record>, CommandError> {
    let known = image.topics.get(topic);
    let configs = match edits {
        ConfigEdits::Exactly(configs) => configs.clone(),
        ConfigEdits::Each(edits) => {
            let mut configs = known.map_or_else(BTreeMap::new, |topic| topic.configs.clone());
            for (name, edit) in edits {
                let value = match edit {
                    ConfigEdit::Set(value) => Some(value.clone()),
                    ConfigEdit::Remove => None,
                    ConfigEdit::Append(words) => Some(edit_list(&configs, name, words, true)?),
                    ConfigEdit::Subtract(words) => Some(edit_list(&configs, name, words, false)?),
                };
                match value {
                    Some(value) => configs.insert(name.clone(), value),
                    None => configs.remove(name),
                };
            }
            configs
        }
    };
    check_configs(settings, &configs)?;
    let topic = known.ok_or_else(|| CommandError::UnknownTopic(format!("The topic '{topic}' does not exist.")))?;
    Ok((configs != topic.configs).then(|| Record::Configs { topic: topic.id.to_string(), configs }))
}

/// A list with words added to it or taken from it (KIP-339): the topic's own, else the default of its row. As in Kafka the
/// broker's default does not count, and a word that is there stays where it is.
fn edit_list(
    configs: &BTreeMap<String, String>,
    name: &str,
    words: &str,
    append: bool,
) -> Result<String, CommandError> {
    let row = topic_row(name).filter(|row| row.kind == Kind::List);
    let row = row.ok_or_else(|| CommandError::InvalidConfig(format!("'{name}' is not a list")))?;
    let current = configs.get(name).map(String::as_str).or(row.default).unwrap_or_default();
    let mut list: Vec<&str> = words_of(current).collect();
    for word in words_of(words) {
        if !append {
            list.retain(|known| *known != word);
        } else if !list.contains(&word) {
            list.push(word);
        }
    }
    Ok(list.join(","))
}

fn words_of(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// The next block of producer ids: its record and its first id.
pub(super) fn plan_producer_ids(image: &Image) -> Result<(Record, std::ops::Range<i64>), CommandError> {
    let first = image.next_producer_id;
    match first.checked_add(PRODUCER_ID_BLOCK) {
        Some(next) => Ok((Record::ProducerIds { next }, first..next)),
        None => Err(CommandError::Storage("all producer ids are used up".to_owned())),
    }
}

/// What the broker asks for when it needs `name` for itself; `None` for other names.
pub(super) fn internal_topic(settings: &BrokerSettings, name: &str) -> Option<NewTopic> {
    let config = |key: &str, value: String| (key.to_owned(), Some(value));
    (name == GROUP_OFFSETS_TOPIC).then(|| NewTopic {
        name: name.to_owned(),
        partitions: i32::try_from(settings.offsets_topic_num_partitions).expect("the setting lies within 32 bits"),
        replication_factor: 1,
        assignment: Vec::new(),
        configs: vec![
            config("cleanup.policy", "compact".to_owned()),
            config("compression.type", "producer".to_owned()),
            config("segment.bytes", settings.offsets_topic_segment_bytes.to_string()),
        ],
    })
}

fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

#[cfg(test)]
mod tests;
