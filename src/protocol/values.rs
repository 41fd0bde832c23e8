//! The types that messages are made of, and how each lies on the wire.
//!
//! Pure. Owns [`Wire`] and its implementations for numbers, text, bytes, arrays and records; structures get theirs from
//! `message!`. Always true: what a type encodes it decodes to itself in the same [`Form`]. Source: Kafka's protocol
//! guide, "Protocol Primitive Types".
//!
//! **Borrowing.** Decoded text and bytes point into the frame: [`Str`] and [`Blob`]. To send a message to another core
//! or to keep it, call [`Wire::into_owned`]. To build one, write `.into()` after whatever is at hand:
//! `"literal".into()`, `name.as_str().into()` (borrowed), `Arc::clone(&topic.name).into()` (shared, no copy),
//! `format!(..).into()` (owned).
//!
//! **Records.** Batches never pass through the codec. Decoding gives [`Records`], their place in the frame, so that the
//! frame itself can be split. Encoding writes their length and leaves a cut where the caller's own slices go: see
//! [`super::wire::Encoded`].

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::ErrorCode;
use super::wire::{Form, Prefix, Reader, Result, WireError, Writer};
use crate::types::TopicId;

/// Elements for which room is made before the first of them was read.
const PREALLOCATE_MAX: usize = 1024;

/// How a type lies on the wire. Implemented by the primitives here and, through `message!`, by every structure.
pub trait Wire<'a>: Sized {
    /// The same value without a borrow: it may outlive the frame and cross cores.
    type Owned: Send + 'static;

    /// Fewest bytes any value takes.
    fn bytes_min(form: Form) -> usize;

    /// Reads one value.
    fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self>;

    /// Writes it. What it writes, [`Wire::decode`] reads back.
    fn encode(&self, writer: &mut Writer, form: Form);

    /// Copies what is borrowed.
    fn into_owned(self) -> Self::Owned;

    /// Some value that survives this form, for tests and fuzzers.
    fn sample(random: &mut fastrand::Rng, form: Form) -> Self;
}

/// A type that has a null form of its own, so that `Option` of it is a [`Wire`] type too.
pub trait Nullable<'a>: Wire<'a> + Default {
    /// Reads a value or its null.
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>>;

    /// Writes a value or its null.
    fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form);
}

impl<'a, T: Nullable<'a>> Wire<'a> for Option<T> {
    type Owned = Option<T::Owned>;

    fn bytes_min(_: Form) -> usize {
        1
    }

    fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
        match T::decode_nullable(reader, form)? {
            None if !form.nullable => Err(WireError::Null),
            value => Ok(value),
        }
    }

    fn encode(&self, writer: &mut Writer, form: Form) {
        match self {
            None if !form.nullable => T::default().encode(writer, form),
            value => T::encode_nullable(value.as_ref(), writer, form),
        }
    }

    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
    }

    fn sample(random: &mut fastrand::Rng, form: Form) -> Self {
        if form.nullable && random.u8(..4) == 0 { None } else { Some(T::sample(random, form)) }
    }
}

macro_rules! numbers {
    ($($number:ty: $bytes:literal, $decode:expr, $encode:expr;)*) => {$(
        impl Wire<'_> for $number {
            type Owned = Self;

            fn bytes_min(_: Form) -> usize {
                $bytes
            }

            fn decode(reader: &mut Reader<'_>, _: Form) -> Result<Self> {
                reader.fixed::<$bytes>().map($decode)
            }

            fn encode(&self, writer: &mut Writer, _: Form) {
                writer.put(&$encode(*self));
            }

            fn into_owned(self) -> Self {
                self
            }

            fn sample(random: &mut fastrand::Rng, _: Form) -> Self {
                let bytes = match random.u8(..8) {
                    0 => [0; $bytes],
                    1 => [0xff; $bytes],
                    _ => std::array::from_fn(|_| random.u8(..)),
                };
                ($decode)(bytes)
            }
        }
    )*};
}

numbers! {
    bool: 1, |[byte]: [u8; 1]| byte != 0, |value| [u8::from(value)];
    i8: 1, i8::from_be_bytes, i8::to_be_bytes;
    i16: 2, i16::from_be_bytes, i16::to_be_bytes;
    i32: 4, i32::from_be_bytes, i32::to_be_bytes;
    i64: 8, i64::from_be_bytes, i64::to_be_bytes;
    TopicId: 16, TopicId::from_bytes, TopicId::to_bytes;
    ErrorCode: 2, |bytes| ErrorCode(i16::from_be_bytes(bytes)), |code: ErrorCode| code.0.to_be_bytes();
}

/// Up to `usual`; now and then so many that a compact length takes two bytes.
fn sample_length(random: &mut fastrand::Rng, usual: usize) -> usize {
    if random.u8(..) == 0 { random.usize(126..140) } else { random.usize(..=usual) }
}

/// A value lent by the frame, or shared. Derefs to it; compares by content.
pub enum Lent<'a, T: ?Sized> {
    /// Points into the frame, or at something else that lives long enough.
    Borrowed(&'a T),
    /// Counted.
    Shared(Arc<T>),
}

/// Text. What is not UTF-8 becomes U+FFFD, as in Kafka.
pub type Str<'a> = Lent<'a, str>;

/// Bytes whose meaning is the client's.
pub type Blob<'a> = Lent<'a, [u8]>;

impl<T: ?Sized> Lent<'_, T>
where
    Arc<T>: for<'t> From<&'t T>,
{
    /// A counted copy, or another count of what is counted already.
    pub fn to_shared(&self) -> Arc<T> {
        match self {
            Self::Borrowed(value) => Arc::from(*value),
            Self::Shared(value) => Arc::clone(value),
        }
    }
}

impl<T: ?Sized> Clone for Lent<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(value) => Self::Borrowed(value),
            Self::Shared(value) => Self::Shared(Arc::clone(value)),
        }
    }
}

impl<T: ?Sized> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(value) => value,
            Self::Shared(value) => value,
        }
    }
}

impl<'a, T: ?Sized> Default for Lent<'a, T>
where
    &'a T: Default,
{
    fn default() -> Self {
        Self::Borrowed(Default::default())
    }
}

impl<T: ?Sized + PartialEq> PartialEq for Lent<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for Lent<'_, T> {}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<'a, T: ?Sized> From<&'a T> for Lent<'a, T> {
    fn from(value: &'a T) -> Self {
        Self::Borrowed(value)
    }
}

impl<T: ?Sized> From<Arc<T>> for Lent<'_, T> {
    fn from(value: Arc<T>) -> Self {
        Self::Shared(value)
    }
}

impl From<String> for Str<'_> {
    fn from(value: String) -> Self {
        Self::Shared(value.into())
    }
}

impl From<Vec<u8>> for Blob<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Shared(value.into())
    }
}

impl<'a> Wire<'a> for Str<'a> {
    type Owned = Str<'static>;

    fn bytes_min(form: Form) -> usize {
        if form.flexible { 1 } else { 2 }
    }

    fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
        Self::decode_nullable(reader, form)?.ok_or(WireError::Null)
    }

    fn encode(&self, writer: &mut Writer, form: Form) {
        Self::encode_nullable(Some(self), writer, form);
    }

    fn into_owned(self) -> Self::Owned {
        Lent::Shared(self.to_shared())
    }

    fn sample(random: &mut fastrand::Rng, _: Form) -> Self {
        let letters = ['a', 'b', 'c', 'd', 'x', 'y', 'z', '0', '1', '2', '.', '_', '-', 'é', '漢'];
        let length = sample_length(random, 12);
        (0..length).filter_map(|_| random.choice(letters)).collect::<String>().into()
    }
}

impl<'a> Nullable<'a> for Str<'a> {
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
        Ok(reader.text(form)?.map(|bytes| match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }))
    }

    fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        writer.text(value.map(Deref::deref), form);
    }
}

impl<'a> Wire<'a> for Blob<'a> {
    type Owned = Blob<'static>;

    fn bytes_min(form: Form) -> usize {
        if form.flexible { 1 } else { 4 }
    }

    fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
        Self::decode_nullable(reader, form)?.ok_or(WireError::Null)
    }

    fn encode(&self, writer: &mut Writer, form: Form) {
        Self::encode_nullable(Some(self), writer, form);
    }

    fn into_owned(self) -> Self::Owned {
        Lent::Shared(self.to_shared())
    }

    fn sample(random: &mut fastrand::Rng, _: Form) -> Self {
        let length = sample_length(random, 12);
        (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>().into()
    }
}

impl<'a> Nullable<'a> for Blob<'a> {
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
        let Some(length) = reader.length(form, Prefix::Four)? else { return Ok(None) };
        Ok(Some(reader.take(length)?.into()))
    }

    fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        writer.length(value.map(|bytes| bytes.len()), form, Prefix::Four);
        writer.put(value.map_or(&[], Deref::deref));
    }
}

/// Record batches of one partition. Decoded: where they lie in the frame. To encode: how long they are; the bytes
/// themselves are put into the cut by whoever sends the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    start: u32,
    bytes: u32,
}

impl Records {
    /// No batches. What a broker answers instead of null, which some clients refuse.
    pub const EMPTY: Self = Self { start: 0, bytes: 0 };

    /// Of `bytes` bytes, for a message to be encoded. Panics past 4 GiB: a fetch is bounded far below.
    pub fn of_length(bytes: usize) -> Self {
        Self { start: 0, bytes: u32::try_from(bytes).expect("records of a message stay below 4 GiB") }
    }

    /// Where they lie in the frame, counted from the byte after its length prefix.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.bytes as usize
    }

    /// Their length.
    pub fn len(self) -> usize {
        self.bytes as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }
}

impl Wire<'_> for Records {
    type Owned = Self;

    fn bytes_min(form: Form) -> usize {
        Blob::bytes_min(form)
    }

    fn decode(reader: &mut Reader<'_>, form: Form) -> Result<Self> {
        Self::decode_nullable(reader, form)?.ok_or(WireError::Null)
    }

    fn encode(&self, writer: &mut Writer, form: Form) {
        Self::encode_nullable(Some(self), writer, form);
    }

    fn into_owned(self) -> Self {
        self
    }

    fn sample(random: &mut fastrand::Rng, _: Form) -> Self {
        Self::of_length(sample_length(random, 80))
    }
}

impl Nullable<'_> for Records {
    fn decode_nullable(reader: &mut Reader<'_>, form: Form) -> Result<Option<Self>> {
        let Some(length) = reader.length(form, Prefix::Four)? else { return Ok(None) };
        let start = reader.position();
        reader.take(length)?;
        let fits = "a frame is announced by an i32";
        Ok(Some(Self { start: u32::try_from(start).expect(fits), bytes: u32::try_from(length).expect(fits) }))
    }

    fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
        writer.records(value.map(|records| records.len()), form);
    }
}

macro_rules! arrays {
    ($([$($generics:tt)*] $array:ty => $owned:ty where [$($bounds:tt)*];)*) => {$(
        impl<'a, T: Wire<'a>, $($generics)*> Wire<'a> for $array
        where
            $($bounds)*
        {
            type Owned = $owned;

            fn bytes_min(form: Form) -> usize {
                if form.flexible { 1 } else { 4 }
            }

            fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
                Self::decode_nullable(reader, form)?.ok_or(WireError::Null)
            }

            fn encode(&self, writer: &mut Writer, form: Form) {
                Self::encode_nullable(Some(self), writer, form);
            }

            fn into_owned(self) -> Self::Owned {
                self.into_iter().map(T::into_owned).collect()
            }

            fn sample(random: &mut fastrand::Rng, form: Form) -> Self {
                (0..sample_length(random, 3)).map(|_| T::sample(random, form)).collect()
            }
        }

        impl<'a, T: Wire<'a>, $($generics)*> Nullable<'a> for $array
        where
            $($bounds)*
        {
            fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
                let Some(count) = reader.count::<T>(form)? else { return Ok(None) };
                let mut elements = Self::with_capacity(count.min(PREALLOCATE_MAX));
                for _ in 0..count {
                    elements.push(T::decode(reader, form)?);
                }
                Ok(Some(elements))
            }

            fn encode_nullable(value: Option<&Self>, writer: &mut Writer, form: Form) {
                writer.length(value.map(|elements| elements.len()), form, Prefix::Four);
                for element in value.into_iter().flatten() {
                    element.encode(writer, form);
                }
            }
        }
    )*};
}

arrays! {
    [] Vec<T> => Vec<T::Owned> where [];
    [const N: usize] SmallVec<[T; N]> => SmallVec<[T::Owned; N]>
        where [[T; N]: smallvec::Array<Item = T>, [T::Owned; N]: smallvec::Array<Item = T::Owned> + Send + 'static];
}
