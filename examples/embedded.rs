//! A broker within this program, on a free port, with an admin client against it: what a test of your own would do.
//!
//! `cargo run --example embedded`

use std::error::Error;

use ringlog::client::admin::{ConfigChange, ConfigResource, NewTopic, OffsetSpec};
use ringlog::client::{Admin, AdminSettings, Settings as _};
use ringlog::config::{self, Sources};
use ringlog::control::Embedded;

fn main() -> Result<(), Box<dyn Error>> {
    // Not in memory: a tmpfs may not take the broker's direct writes.
    let directory = std::env::current_dir()?.join("target").join(format!("embedded-{}", std::process::id()));
    let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = Sources {
        overrides: vec![
            setting("log.dirs", &directory.display().to_string()),
            setting("listeners", "PLAINTEXT://127.0.0.1:0"),
            setting("admin.listener", "off"),
            setting("engine.shards", "1"),
        ],
        ..Sources::default()
    };
    let (settings, _notes) = config::load(&sources).map_err(|problems| format!("{problems:?}"))?;
    let broker = Embedded::start(settings)?;
    println!("a broker on {}", broker.address());

    let settings = AdminSettings::builder().set("bootstrap.servers", broker.address()).build()?;
    let admin = Admin::new(settings)?.blocking();
    for topic in admin.create_topics(vec![NewTopic::new("orders").partitions(3)], false)? {
        match topic.error {
            None => println!("created {} with {} partitions", topic.name, topic.partitions.unwrap_or_default()),
            Some(error) => return Err(format!("{}: {error}", topic.name).into()),
        }
    }
    let orders = ConfigResource::topic("orders");
    admin.alter_configs(vec![(orders.clone(), vec![ConfigChange::set("retention.ms", "3600000")])], false)?;
    for config in &admin.describe_configs(vec![orders], Some(vec!["retention.ms".to_owned()]))?[0].configs {
        println!("{} = {} ({})", config.name, config.value.as_deref().unwrap_or("unset"), config.source.name());
    }
    let ends = (0..3).map(|partition| ("orders".to_owned(), partition, OffsetSpec::Latest)).collect();
    for end in admin.list_offsets(ends, false)? {
        println!("{}-{} ends at {}", end.topic, end.partition, end.offset.unwrap_or_default());
    }

    broker.stop()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
