//! Bytes to values and back: a bounded [`Reader`], a [`Writer`], and [`Wire`], which says how each type lies on the wire.
//!
//! Pure. Owns the primitive types of Kafka's protocol; the `message!` notation on top of them is in `notation.rs`, the
//! messages in their own files. Always true: nothing is read past the end; no memory is taken from a number a peer sent
//! before the bytes that number speaks of were seen to be there; one message never grows past [`DECODED_BYTES_MAX`]
//! beyond its frame; errors are two words on the stack. Source: Kafka's protocol guide, KIP-482 (flexible versions).
//!
//! **Borrowing.** Decoded text and bytes point into the frame: [`Str`] and [`Blob`]. To send a message to another core or to
//! keep it, call [`Wire::into_owned`]. To build one, write `.into()` after whatever is at hand: `"literal".into()`,
//! `name.as_str().into()` (borrowed), `Arc::clone(&topic.name).into()` (shared, no copy), `format!(..).into()` (owned).
//!
//! **Records.** Batches never pass through the codec. Decoding gives [`Records`], their place in the frame, so that the
//! frame itself can be split. Encoding writes their length and leaves a cut where the caller's own slices go: [`Encoded`].

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::error::ErrorCode;
use crate::types::TopicId;

/// What a message's arrays may take in memory, beyond the frame they came in. A frame of 100 MiB could otherwise say "fifty
/// million empty names". The largest honest requests (100,000 partitions) need a tenth of it.
pub const DECODED_BYTES_MAX: usize = 64 << 20;

/// Elements for which room is made before the first of them was read.
const PREALLOCATE_MAX: usize = 1024;

/// Longest text the protocol carries, also where the encoding has room for more (Kafka refuses longer ones too).
const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Why bytes are not the message they should be. Always the peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field, or the elements a count promises, would lie past the end.
    #[error("the message ends inside a field")]
    Short,
    /// A varint with more bits than its type.
    #[error("a varint overflows")]
    Varint,
    /// Text longer than the protocol allows.
    #[error("a string is longer than 32767 bytes")]
    Length,
    /// Null where this version of the message has none.
    #[error("null in a field that cannot be null")]
    Null,
    /// Text in another encoding.
    #[error("text that is not UTF-8")]
    Utf8,
    /// Bytes after the last field.
    #[error("bytes after the end of the message")]
    Trailing,
    /// See [`DECODED_BYTES_MAX`].
    #[error("more array elements than a message may hold")]
    Memory,
}

/// Result of decoding.
pub type Result<T> = std::result::Result<T, WireError>;

/// Reads one frame from front to back. After an error its position means nothing.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Where `rest` ends, counted from the start of the frame.
    end: usize,
    /// What is left of [`DECODED_BYTES_MAX`].
    budget: usize,
}

impl<'a> Reader<'a> {
    /// From the first byte after the length prefix; positions count from here.
    pub fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame, end: frame.len(), budget: DECODED_BYTES_MAX }
    }

    /// Bytes from the start of the frame to the next field.
    pub fn position(&self) -> usize {
        self.end - self.rest.len()
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Errors: `Trailing` if anything is left.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }

    /// The next `bytes` bytes, borrowed.
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes, copied out: the raw form of every number.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned varint of at most 5 bytes.
    pub fn unsigned_varint(&mut self) -> Result<u32> {
        self.base_128(u32::BITS).map(|value| value as u32)
    }

    /// A zig-zag varint of at most 5 bytes, as records use.
    pub fn varint(&mut self) -> Result<i32> {
        self.unsigned_varint().map(|value| (value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// A zig-zag varint of at most 10 bytes, as records use.
    pub fn varlong(&mut self) -> Result<i64> {
        self.base_128(u64::BITS).map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn base_128(&mut self, bits: u32) -> Result<u64> {
        let mut value = 0;
        for shift in (0..bits).step_by(7) {
            let [byte] = self.fixed()?;
            let group = u64::from(byte & 0x7f);
            if group.checked_shr(bits - shift).unwrap_or(0) != 0 {
                return Err(WireError::Varint);
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Varint)
    }

    /// The client id of a request header, in the old encoding even where all else is flexible.
    pub(super) fn client_id(&mut self) -> Result<Option<&'a str>> {
        self.text(Form::new(0, i16::MAX))
    }

    fn text(&mut self, form: Form) -> Result<Option<&'a str>> {
        let Some(length) = self.length(form, Prefix::Two)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(WireError::Length);
        }
        std::str::from_utf8(self.take(length)?).map(Some).map_err(|_| WireError::Utf8)
    }

    /// The length before text, bytes or an array; `None` is null. In flexible versions a varint of length + 1, else a signed
    /// integer of two bytes (text) or four, of which every negative value is null, as in Kafka.
    fn length(&mut self, form: Form, prefix: Prefix) -> Result<Option<usize>> {
        Ok(match prefix {
            _ if form.flexible => self.unsigned_varint()?.checked_sub(1).map(|length| length as usize),
            Prefix::Two => usize::try_from(i16::from_be_bytes(self.fixed()?)).ok(),
            Prefix::Four => usize::try_from(i32::from_be_bytes(self.fixed()?)).ok(),
        })
    }

    /// The count before an array, believed only if the rest of the frame could hold so many `T`.
    fn count<T: Wire<'a>>(&mut self, form: Form) -> Result<Option<usize>> {
        let Some(count) = self.length(form, Prefix::Four)? else { return Ok(None) };
        if count > self.remaining() / T::bytes_min(form).max(1) {
            return Err(WireError::Short);
        }
        let bytes = count.saturating_mul(size_of::<T>());
        self.budget = self.budget.checked_sub(bytes).ok_or(WireError::Memory)?;
        Ok(Some(count))
    }

    /// The tagged fields at the end of every structure of a flexible version. `known` reads the field whose tag it knows and
    /// returns true, or returns false; such a field is skipped. A known field must fill its announced size exactly.
    pub fn tagged_fields(&mut self, mut known: impl FnMut(u32, &mut Self) -> Result<bool>) -> Result<()> {
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let field = self.take(size)?;
            let (rest, end) = (self.rest, self.end);
            (self.rest, self.end) = (field, self.position());
            if known(tag, self)? && !self.rest.is_empty() {
                return Err(WireError::Trailing);
            }
            (self.rest, self.end) = (rest, end);
        }
        Ok(())
    }
}

/// Bytes of a length prefix before flexible versions.
#[derive(Clone, Copy)]
enum Prefix {
    Two,
    Four,
}

/// How the values of one message are laid out: its version, and whether that version is flexible (compact lengths, tagged
/// fields). The root of a message fixes it; everything below is read and written with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Version of the API, or of the record schema.
    pub version: i16,
    /// Whether KIP-482 applies.
    pub flexible: bool,
    /// Whether the field about to be read may be null.
    pub(super) nullable: bool,
}

impl Form {
    /// Of a message that is flexible from version `flexible_from` on.
    pub fn new(version: i16, flexible_from: i16) -> Self {
        Self { version, flexible: version >= flexible_from, nullable: false }
    }

    /// For a field that may (or may not) be null.
    pub(super) fn nullable(self, nullable: bool) -> Self {
        Self { nullable, ..self }
    }
}

/// Where records go in an encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// After so many bytes of the message without its records.
    at: usize,
    /// Length of the records.
    bytes: usize,
}

/// Writes one message. Cannot fail: what a version lacks is left out, null becomes the empty value where a version has no
/// null (as Kafka's brokers do by hand), and text longer than the protocol carries is cut at a character. Only our own error
/// texts can be that long: everything else came in over the wire.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: BytesMut,
    cuts: SmallVec<[Cut; 4]>,
}

impl Writer {
    /// Appends to `bytes`, which is empty or holds what goes before.
    pub fn new(bytes: BytesMut) -> Self {
        Self { bytes, cuts: SmallVec::new() }
    }

    /// What was written.
    pub fn finish(self) -> Encoded {
        Encoded { bytes: self.bytes, cuts: self.cuts }
    }

    /// What was written, the first four bytes being room for the length of all that follows, records included. Panics past
    /// 2 GiB: fetch sizes are bounded far below.
    pub(super) fn finish_frame(mut self) -> Encoded {
        let records: usize = self.cuts.iter().map(|cut| cut.bytes).sum();
        let (prefix, body) = self.bytes.split_first_chunk_mut::<4>().expect("a frame begins with its length");
        let length = i32::try_from(body.len() + records).expect("an answer is bounded by the fetch sizes");
        *prefix = length.to_be_bytes();
        self.finish()
    }

    /// Bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    /// An unsigned varint, 1 to 5 bytes.
    pub fn unsigned_varint(&mut self, value: u32) {
        self.base_128(u64::from(value));
    }

    /// A zig-zag varint, 1 to 5 bytes, as records use.
    pub fn varint(&mut self, value: i32) {
        self.unsigned_varint(((value << 1) ^ (value >> 31)) as u32);
    }

    /// A zig-zag varint, 1 to 10 bytes, as records use.
    pub fn varlong(&mut self, value: i64) {
        self.base_128(((value << 1) ^ (value >> 63)) as u64);
    }

    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    fn base_128(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    /// The other side of [`Reader::client_id`].
    pub(super) fn client_id(&mut self, client_id: &str) {
        self.text(client_id, Form::new(0, i16::MAX));
    }

    fn text(&mut self, text: &str, form: Form) {
        let (text, _) = text.split_at(text.floor_char_boundary(STRING_BYTES_MAX));
        self.length(Some(text.len()), form, Prefix::Two);
        self.put(text.as_bytes());
    }

    fn length(&mut self, length: Option<usize>, form: Form, prefix: Prefix) {
        let length = length.map_or(-1, |length| i32::try_from(length).expect("an answer stays below 2 GiB"));
        match prefix {
            _ if form.flexible => self.unsigned_varint((length + 1) as u32),
            Prefix::Two => self.put(&i16::try_from(length).expect("text is cut before").to_be_bytes()),
            Prefix::Four => self.put(&length.to_be_bytes()),
        }
    }

    /// The tagged fields that end a structure: those pushed into `tags`, in rising order of tag.
    pub fn tagged_fields(&mut self, tags: Tags) {
        self.unsigned_varint(tags.count);
        self.put(&tags.fields.bytes);
    }
}

/// Tagged fields on their way into a [`Writer`], which must know their number first. Empty ones take no memory.
#[derive(Debug, Default)]
pub struct Tags {
    count: u32,
    fields: Writer,
}

impl Tags {
    /// Adds one field.
    pub fn push<'a>(&mut self, tag: u32, value: &impl Wire<'a>, form: Form) {
        let mut field = Writer::default();
        value.encode(&mut field, form);
        self.count += 1;
        self.fields.unsigned_varint(tag);
        self.fields.length_of_tag(field.bytes.len());
        self.fields.put(&field.bytes);
    }
}

impl Writer {
    fn length_of_tag(&mut self, bytes: usize) {
        self.unsigned_varint(u32::try_from(bytes).expect("an answer stays below 2 GiB"));
    }
}

/// An encoded message: its bytes, and the places where the records it announces are still missing.
#[derive(Debug)]
pub struct Encoded {
    bytes: BytesMut,
    cuts: SmallVec<[Cut; 4]>,
}

/// One piece of an [`Encoded`] message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Bytes of the message.
    Bytes(Bytes),
    /// Here go records. Those of length 0 have no segment.
    Records {
        /// Which [`Records`] field of the message, counted from 0 in the order they were written.
        index: usize,
        /// The length announced for them.
        bytes: usize,
    },
}

impl Encoded {
    /// Bytes of the whole message, records included.
    pub fn bytes_total(&self) -> usize {
        self.bytes.len() + self.cuts.iter().map(|cut| cut.bytes).sum::<usize>()
    }

    /// The pieces in the order they are sent.
    pub fn into_segments(mut self) -> impl Iterator<Item = Segment> {
        let mut done = 0;
        let last = Cut { at: self.bytes.len(), bytes: 0 };
        self.cuts.push(last);
        self.cuts.into_iter().enumerate().flat_map(move |(index, Cut { at, bytes })| {
            let message = self.bytes.split_to(at - std::mem::replace(&mut done, at));
            let message = (!message.is_empty()).then(|| Segment::Bytes(message.freeze()));
            let records = (bytes > 0).then_some(Segment::Records { index, bytes });
            message.into_iter().chain(records)
        })
    }

    /// The whole message. Panics if records are missing from it: their announced length would be a lie.
    pub fn into_bytes(self) -> BytesMut {
        assert_eq!(self.bytes.len(), self.bytes_total(), "records are still to be put in");
        self.bytes
    }
}

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
}

/// A type that has a null form of its own, so that `Option` of it is a [`Wire`] type too.
pub trait Nullable<'a>: Wire<'a> + Default {
    /// Reads a value or its null.
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>>;

    /// Writes null.
    fn encode_null(writer: &mut Writer, form: Form);
}

impl<'a, T: Nullable<'a>> Wire<'a> for Option<T> {
    type Owned = Option<T::Owned>;

    fn bytes_min(form: Form) -> usize {
        T::bytes_min(form).min(4)
    }

    fn decode(reader: &mut Reader<'a>, form: Form) -> Result<Self> {
        match T::decode_nullable(reader, form)? {
            None if !form.nullable => Err(WireError::Null),
            value => Ok(value),
        }
    }

    fn encode(&self, writer: &mut Writer, form: Form) {
        match self {
            Some(value) => value.encode(writer, form),
            None if form.nullable => T::encode_null(writer, form),
            None => T::default().encode(writer, form),
        }
    }

    fn into_owned(self) -> Self::Owned {
        self.map(T::into_owned)
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
        }
    )*};
}

numbers! {
    bool: 1, |[byte]| byte != 0, |value| [u8::from(value)];
    i8: 1, i8::from_be_bytes, i8::to_be_bytes;
    i16: 2, i16::from_be_bytes, i16::to_be_bytes;
    i32: 4, i32::from_be_bytes, i32::to_be_bytes;
    i64: 8, i64::from_be_bytes, i64::to_be_bytes;
    TopicId: 16, TopicId::from_bytes, TopicId::to_bytes;
    ErrorCode: 2, |bytes| ErrorCode(i16::from_be_bytes(bytes)), |code: ErrorCode| code.0.to_be_bytes();
}

/// A value lent by the frame, or shared. Derefs to it; compares by content.
pub enum Lent<'a, T: ?Sized> {
    /// Points into the frame, or at something else that lives long enough.
    Borrowed(&'a T),
    /// Counted.
    Shared(Arc<T>),
}

/// Text.
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
        writer.text(self, form);
    }

    fn into_owned(self) -> Self::Owned {
        Lent::Shared(self.to_shared())
    }
}

impl<'a> Nullable<'a> for Str<'a> {
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
        Ok(reader.text(form)?.map(Lent::Borrowed))
    }

    fn encode_null(writer: &mut Writer, form: Form) {
        writer.length(None, form, Prefix::Two);
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
        writer.length(Some(self.len()), form, Prefix::Four);
        writer.put(self);
    }

    fn into_owned(self) -> Self::Owned {
        Lent::Shared(self.to_shared())
    }
}

impl<'a> Nullable<'a> for Blob<'a> {
    fn decode_nullable(reader: &mut Reader<'a>, form: Form) -> Result<Option<Self>> {
        let Some(length) = reader.length(form, Prefix::Four)? else { return Ok(None) };
        Ok(Some(reader.take(length)?.into()))
    }

    fn encode_null(writer: &mut Writer, form: Form) {
        writer.length(None, form, Prefix::Four);
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
        writer.length(Some(self.len()), form, Prefix::Four);
        writer.cuts.push(Cut { at: writer.bytes.len(), bytes: self.len() });
    }

    fn into_owned(self) -> Self {
        self
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

    fn encode_null(writer: &mut Writer, form: Form) {
        Blob::encode_null(writer, form);
        writer.cuts.push(Cut { at: writer.bytes.len(), bytes: 0 });
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
                writer.length(Some(self.len()), form, Prefix::Four);
                for element in self {
                    element.encode(writer, form);
                }
            }

            fn into_owned(self) -> Self::Owned {
                self.into_iter().map(T::into_owned).collect()
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

            fn encode_null(writer: &mut Writer, form: Form) {
                writer.length(None, form, Prefix::Four);
            }
        }
    )*};
}

arrays! {
    [] Vec<T> => Vec<T::Owned> where [];
    [const N: usize] SmallVec<[T; N]> => SmallVec<[T::Owned; N]>
        where [[T; N]: smallvec::Array<Item = T>, [T::Owned; N]: smallvec::Array<Item = T::Owned> + Send + 'static];
}
