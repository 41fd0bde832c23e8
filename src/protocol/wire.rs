//! Bytes to values and back: a bounded [`Reader`], and a [`Writer`] that cannot fail.
//!
//! Pure. Owns lengths, varints, tagged fields and their bounds. The types of the protocol are in [`super::values`],
//! messages made of them in the files named by [`super`]. Always true: nothing is read past the end; no memory is taken
//! for a number a peer sent before the bytes it speaks of were seen to be there; the arrays of one message never take
//! more than [`DECODED_BYTES_MAX`]. Source: Kafka's protocol guide; KIP-482 (flexible versions).

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use super::values::Wire;

/// What a message's arrays may take in memory, beyond the frame they came in. A frame of 100 MiB could otherwise say
/// "fifty million empty names". The largest honest requests (100,000 partitions) need a tenth of it.
pub const DECODED_BYTES_MAX: usize = 64 << 20;

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
    /// What an element of an array counts for at least.
    element_bytes_min: usize,
}

impl<'a> Reader<'a> {
    /// From the first byte after the length prefix; positions count from here.
    pub fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame, end: frame.len(), budget: DECODED_BYTES_MAX, element_bytes_min: 0 }
    }

    /// For a message that may decode to less than [`DECODED_BYTES_MAX`], and each of whose elements costs `element_bytes_min` at
    /// least, however little of it is decoded.
    pub fn within(self, decoded_bytes_max: usize, element_bytes_min: usize) -> Self {
        Self { budget: self.budget.min(decoded_bytes_max), element_bytes_min, ..self }
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
        u32::try_from(self.base_128(u32::BITS)?).map_err(|_| WireError::Varint)
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

    /// The client id of a request header, in the old encoding even where all else is flexible; empty for null, and cut
    /// where it ceases to be UTF-8.
    pub(super) fn client_id(&mut self) -> Result<&'a str> {
        let bytes = self.text(Form::new(0, i16::MAX))?.unwrap_or_default();
        Ok(bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid()))
    }

    /// The bytes of a text.
    pub(super) fn text(&mut self, form: Form) -> Result<Option<&'a [u8]>> {
        match self.length(form, Prefix::Two)? {
            Some(length) if length > STRING_BYTES_MAX => Err(WireError::Length),
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    /// The length before text, bytes or an array; `None` is null. In flexible versions a varint of length + 1, else a
    /// signed integer of two bytes (text) or four, of which every negative value is null, as in Kafka.
    pub(super) fn length(&mut self, form: Form, prefix: Prefix) -> Result<Option<usize>> {
        Ok(match prefix {
            _ if form.flexible => self.unsigned_varint()?.checked_sub(1).map(|length| length as usize),
            Prefix::Two => usize::try_from(i16::from_be_bytes(self.fixed()?)).ok(),
            Prefix::Four => usize::try_from(i32::from_be_bytes(self.fixed()?)).ok(),
        })
    }

    /// The count before an array, believed only if the rest of the frame could hold so many `T`.
    pub(super) fn count<T: Wire<'a>>(&mut self, form: Form) -> Result<Option<usize>> {
        let Some(count) = self.length(form, Prefix::Four)? else { return Ok(None) };
        if count > self.remaining() / T::bytes_min(form).max(1) {
            return Err(WireError::Short);
        }
        let bytes = count.saturating_mul(size_of::<T>().max(self.element_bytes_min));
        self.budget = self.budget.checked_sub(bytes).ok_or(WireError::Memory)?;
        Ok(Some(count))
    }

    /// The tagged fields at the end of every structure of a flexible version. `known` reads the field whose tag it
    /// knows and returns true, or returns false; such a field is skipped. A known field must fill its announced size
    /// exactly.
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
pub(super) enum Prefix {
    Two,
    Four,
}

/// How the values of one message are laid out: its version, and whether that version is flexible (compact lengths,
/// tagged fields). The root of a message fixes it; everything below is read and written with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Version of the API, or of the record schema.
    pub version: i16,
    /// Whether KIP-482 applies.
    pub flexible: bool,
    /// Whether the field at hand may be null in this version.
    pub nullable: bool,
}

impl Form {
    /// Of a message that is flexible from version `flexible_from` on.
    pub fn new(version: i16, flexible_from: i16) -> Self {
        Self { version, flexible: version >= flexible_from, nullable: false }
    }

    /// For a field that may (or may not) be null.
    pub fn nullable(self, nullable: bool) -> Self {
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

/// Writes one message. Cannot fail: what a version lacks is left out, null becomes the empty value where a version has
/// no null (as Kafka's brokers do by hand), and text longer than the protocol carries is cut at a character. Only our
/// own error texts can be that long: names came in over the wire.
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

    /// What was written, the first four bytes being room for the length of all that follows, records included. Panics
    /// past 2 GiB: fetch sizes are bounded far below.
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
        self.text(Some(client_id), Form::new(0, i16::MAX));
    }

    pub(super) fn text(&mut self, text: Option<&str>, form: Form) {
        let text = text.map(|text| text.split_at(text.floor_char_boundary(STRING_BYTES_MAX)).0);
        self.length(text.map(str::len), form, Prefix::Two);
        self.put(text.unwrap_or_default().as_bytes());
    }

    /// The length of records, and the cut where they go.
    pub(super) fn records(&mut self, length: Option<usize>, form: Form) {
        self.length(length, form, Prefix::Four);
        self.cuts.push(Cut { at: self.bytes.len(), bytes: length.unwrap_or(0) });
    }

    pub(super) fn length(&mut self, length: Option<usize>, form: Form, prefix: Prefix) {
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
        self.fields.unsigned_varint(u32::try_from(field.bytes.len()).expect("an answer stays below 2 GiB"));
        self.fields.put(&field.bytes);
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
        /// Which [`super::values::Records`] field of the message, counted from 0 in the order they were written.
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

    /// The whole message in memory of its own, just as long, and the buffer, emptied: for short messages, of which one buffer
    /// then serves many. `Err` when it is longer than `bytes_max`, or records are to be put in.
    pub fn copied_out(self, bytes_max: usize) -> std::result::Result<(Bytes, BytesMut), Self> {
        if !self.cuts.is_empty() || self.bytes.len() > bytes_max {
            return Err(self);
        }
        let (message, mut buffer) = (Bytes::copy_from_slice(&self.bytes), self.bytes);
        buffer.clear();
        Ok((message, buffer))
    }

    /// The whole message. Panics if records are missing from it: their announced length would be a lie.
    pub fn into_bytes(self) -> BytesMut {
        assert_eq!(self.bytes.len(), self.bytes_total(), "records are still to be put in");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::values::{Blob, Str};

    const OLD: Form = Form { version: 0, flexible: false, nullable: true };
    const COMPACT: Form = Form { version: 9, flexible: true, nullable: true };

    fn decoded<'a, T: Wire<'a>>(bytes: &'a [u8], form: Form) -> Result<T> {
        let mut reader = Reader::new(bytes);
        let value = T::decode(&mut reader, form)?;
        reader.finish().map(|()| value)
    }

    fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        write(&mut writer);
        writer.finish().into_bytes().to_vec()
    }

    #[test]
    fn varints_round_trip_at_every_width_and_overflow_is_refused() {
        for shift in 0..32 {
            for value in [1u32 << shift, (1 << shift) - 1, u32::MAX >> shift] {
                let bytes = written(|writer| writer.unsigned_varint(value));
                assert_eq!(Reader::new(&bytes).unsigned_varint(), Ok(value));
                let signed = value as i32;
                let bytes = written(|writer| writer.varint(signed));
                assert_eq!(Reader::new(&bytes).varint(), Ok(signed));
            }
        }
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let bytes = written(|writer| writer.varlong(value));
            assert_eq!(Reader::new(&bytes).varlong(), Ok(value));
        }
        assert_eq!(Reader::new(b"\xff\xff\xff\xff\x0f").unsigned_varint(), Ok(u32::MAX));
        assert_eq!(Reader::new(b"\xff\xff\xff\xff\x10").unsigned_varint(), Err(WireError::Varint));
        assert_eq!(Reader::new(b"\x80\x80\x80\x80\x80\x00").unsigned_varint(), Err(WireError::Varint));
        assert_eq!(Reader::new(&[[0xff; 9].as_slice(), &[0x01]].concat()).varlong(), Ok(i64::MIN));
        assert_eq!(Reader::new(&[[0xff; 9].as_slice(), &[0x02]].concat()).varlong(), Err(WireError::Varint));
        assert_eq!(Reader::new(b"\x80").unsigned_varint(), Err(WireError::Short));
    }

    #[test]
    fn every_negative_length_is_null_as_in_kafka() {
        assert_eq!(decoded::<Option<Str<'_>>>(b"\xff\xff", OLD), Ok(None));
        assert_eq!(decoded::<Option<Str<'_>>>(b"\xff\xfe", OLD), Ok(None));
        assert_eq!(decoded::<Option<Vec<i32>>>(b"\xff\xff\xff\xfe", OLD), Ok(None));
        assert_eq!(decoded::<Option<Blob<'_>>>(b"\x80\0\0\0", OLD), Ok(None));
        assert_eq!(decoded::<Option<Str<'_>>>(b"\0", COMPACT), Ok(None));
        assert_eq!(decoded::<Option<Str<'_>>>(b"\0", COMPACT.nullable(false)), Err(WireError::Null));
        assert_eq!(decoded::<Vec<i32>>(b"\xff\xff\xff\xff", OLD), Err(WireError::Null));
    }

    #[test]
    fn bad_utf_8_is_replaced_as_kafka_does() {
        assert_eq!(decoded::<Str<'_>>(b"\0\x04a\xff\xfeb", OLD), Ok("a\u{fffd}\u{fffd}b".into()));
        assert_eq!(Reader::new(b"\0\x04a\xff\xfeb").client_id(), Ok("a"));
        assert_eq!(Reader::new(b"\xff\xff").client_id(), Ok(""));
    }

    #[test]
    fn text_has_at_most_32767_bytes() {
        let text =
            |length: u32| [written(|writer| writer.unsigned_varint(length + 1)), vec![b'a'; length as usize]].concat();
        assert!(decoded::<Str<'_>>(&text(32_767), COMPACT).is_ok());
        assert_eq!(decoded::<Str<'_>>(&text(32_768), COMPACT), Err(WireError::Length));
        // Our own longer text is cut, between characters.
        let long = format!("a{}", "é".repeat(20_000));
        for form in [OLD, COMPACT] {
            let bytes = written(|writer| Str::from(long.as_str()).encode(writer, form));
            assert_eq!(decoded::<Str<'_>>(&bytes, form).map(|text| text.len()), Ok(32_767));
        }
    }

    #[test]
    fn a_count_is_believed_only_if_the_frame_could_hold_it() {
        assert_eq!(decoded::<Vec<i32>>(b"\0\0\0\x02\0\0\0\x01\0\0\0\x02", OLD), Ok(vec![1, 2]));
        assert_eq!(decoded::<Vec<i32>>(b"\0\0\0\x03\0\0\0\x01\0\0\0\x02", OLD), Err(WireError::Short));
        assert_eq!(decoded::<Vec<i64>>(b"\x7f\xff\xff\xff\0\0\0\0\0\0\0\0", OLD), Err(WireError::Short));
    }

    #[test]
    fn elements_that_cost_more_than_their_bytes_are_bounded_together() {
        let empty_names = 4 << 20;
        let mut frame = i32::try_from(empty_names).unwrap().to_be_bytes().to_vec();
        frame.resize(4 + 2 * empty_names, 0);
        const { assert!((4 << 20) * size_of::<Str<'_>>() > DECODED_BYTES_MAX) };
        assert_eq!(decoded::<Vec<Str<'_>>>(&frame, OLD), Err(WireError::Memory));
    }

    #[test]
    fn elements_that_are_answered_with_more_than_their_bytes_count_for_more() {
        let frame = [4_i32, 1, 2, 3, 4].map(i32::to_be_bytes).concat();
        let within = |bytes| Vec::<i32>::decode(&mut Reader::new(&frame).within(bytes, 32), OLD);
        assert_eq!(within(4 * 32), Ok(vec![1, 2, 3, 4]));
        assert_eq!(within(4 * 32 - 1), Err(WireError::Memory));
    }

    #[test]
    fn a_tagged_field_fills_its_size_and_unknown_ones_are_skipped() {
        let read = |bytes: &'static [u8]| {
            let mut reader = Reader::new(bytes);
            let mut value = None;
            reader.tagged_fields(|tag, reader| {
                if tag == 1 {
                    value = Some((reader.position(), i16::decode(reader, COMPACT)?));
                }
                Ok(tag == 1)
            })?;
            reader.finish().map(|()| value)
        };
        assert_eq!(read(b"\x02\x00\x03abc\x01\x02\x00\x07"), Ok(Some((8, 7))));
        assert_eq!(read(b"\x01\x01\x03\x00\x07\x00"), Err(WireError::Trailing));
        assert_eq!(read(b"\x01\x01\x01\x00"), Err(WireError::Short));
        assert_eq!(read(b"\xff\xff\xff\xff\x0f\x00\x00"), Err(WireError::Short));
    }
}
