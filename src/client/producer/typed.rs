//! A producer of keys and values of a program's own types.
//!
//! Shell: a face of the producer. Owns the two serializers. Source: Kafka's `Serializer` and `KafkaProducer<K, V>`.

use std::sync::Arc;

use super::{Delivery, Producer};
use crate::client::delivery::{DeliveryError, SendError};
use crate::client::record::{Headers, ProducerRecord, RecordMetadata, Serializer};
use crate::types::TopicName;

/// Sends keys of type `K` and values of type `V` through a [`Producer`], which it shares with others.
pub struct TypedProducer<K: ?Sized, V: ?Sized> {
    producer: Producer,
    keys: Arc<dyn Serializer<K>>,
    values: Arc<dyn Serializer<V>>,
}

impl Producer {
    /// The same producer, for keys and values with these serializers.
    pub fn typed<K: ?Sized, V: ?Sized>(
        &self,
        keys: impl Serializer<K> + 'static,
        values: impl Serializer<V> + 'static,
    ) -> TypedProducer<K, V> {
        TypedProducer { producer: self.clone(), keys: Arc::new(keys), values: Arc::new(values) }
    }
}

impl<K: ?Sized, V: ?Sized> TypedProducer<K, V> {
    /// The record of a key and a value. Errors: a serializer refused.
    pub fn record(&self, topic: impl Into<TopicName>, key: Option<&K>, value: &V) -> Result<ProducerRecord, SendError> {
        let mut record = ProducerRecord::to(topic);
        let mut headers = Headers::new();
        if let Some(key) = key {
            record.key = self.keys.serialize(&record.topic, &mut headers, key)?;
        }
        record.value = self.values.serialize(&record.topic, &mut headers, value)?;
        record.headers = headers;
        Ok(record)
    }

    /// As [`Producer::send`].
    pub async fn send(&self, topic: impl Into<TopicName>, key: Option<&K>, value: &V) -> Result<Delivery, SendError> {
        let record = self.record(topic, key, value)?;
        self.producer.send(record).await
    }

    /// As [`Producer::send_sync`].
    pub fn send_sync(
        &self,
        topic: impl Into<TopicName>,
        key: Option<&K>,
        value: &V,
    ) -> Result<RecordMetadata, DeliveryError> {
        let record = self.record(topic, key, value)?;
        self.producer.send_sync(record)
    }
}
