//! From bytes on standard input to records: what `produce` reads.
//!
//! Pure. Owns the splitting into records and of each record into its fields, for lines (`-D`, `-K`), formats (`-f`) and JSON (`-J`).
//! Does not own the reading: the shell feeds bytes. Always: a record that is cut off by the end of input is a record too; errors
//! name its number. Source: kcat's producer, rpk's `produce -f`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::record_format::escape;
use crate::types::TimestampMs;

/// A record as it was written on the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) topic: Option<String>,
    pub(super) partition: Option<i32>,
    pub(super) timestamp: Option<TimestampMs>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// How the input is made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Records end with `record_end`; a key, if any, ends with `key_end`.
    Lines {
        record_end: Vec<u8>,
        key_end: Option<Vec<u8>>,
        /// What is empty is null.
        empty_is_null: bool,
    },
    /// Fields and the text between them.
    Fields(Vec<Field>),
    /// One JSON object a line, as `consume -J` writes them.
    Json(Place),
}

/// What becomes of the topic and partition that a JSON object names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// They say where the record was, not where it goes; a partition without a topic says where it goes.
    Was,
    /// The record goes there.
    Goes,
}

/// A part of an input format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Up to the text that follows.
    Read(Token),
    /// Just so many bytes.
    Sized(Token, usize),
    /// This text.
    Text(Vec<u8>),
}

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Key,
    Value,
    Topic,
    Partition,
    Timestamp,
    /// `name=value,name=value`
    Headers,
}

/// Reads an input format: `%k %v %t %p %T %h`, each followed by text or sized (`%v{16}`), and escapes.
pub(super) fn parse_fields(format: &str) -> Result<Vec<Field>, String> {
    let mut fields: Vec<Field> = Vec::new();
    let mut rest = format;
    let literal = |fields: &mut Vec<Field>, bytes: &[u8]| match fields.last_mut() {
        Some(Field::Text(before)) => before.extend_from_slice(bytes),
        _ => fields.push(Field::Text(bytes.to_vec())),
    };
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => literal(&mut fields, &[escape(&mut rest)?]),
            '%' => {
                let name = rest.chars().next().ok_or("the format ends with a lone %")?;
                rest = &rest[name.len_utf8()..];
                let token = match name {
                    'k' => Token::Key,
                    's' | 'v' => Token::Value,
                    't' => Token::Topic,
                    'p' => Token::Partition,
                    'T' | 'd' => Token::Timestamp,
                    'h' => Token::Headers,
                    '%' => {
                        literal(&mut fields, b"%");
                        continue;
                    }
                    other => return Err(format!("%{other} cannot be read: %k, %v, %t, %p, %T and %h can")),
                };
                if matches!(fields.last(), Some(Field::Read(_))) {
                    return Err(format!("nothing stands before %{name} to end the field before it"));
                }
                match rest.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
                    Some((size, after)) => {
                        let size = size.parse().map_err(|_| format!("%{name}{{{size}}}: the size is no number"))?;
                        fields.push(Field::Sized(token, size));
                        rest = after;
                    }
                    None => fields.push(Field::Read(token)),
                }
            }
            letter => literal(&mut fields, letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    // A format that uses up nothing would read records without end.
    let reads = |field: &Field| matches!(field, Field::Read(_) | Field::Sized(_, 1..));
    if !fields.iter().any(reads) {
        return Err("the format reads nothing: write a field such as %v".to_owned());
    }
    if matches!(fields.last(), Some(Field::Read(_))) {
        fields.push(Field::Text(b"\n".to_vec()));
    }
    Ok(fields)
}

/// Cuts records off what was read so far.
#[derive(Debug)]
pub(super) struct Cutter {
    input: Input,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are used up.
    used: usize,
    /// Records cut so far.
    count: u64,
}

/// Larger records fit no broker's default by far; input without its delimiter must not fill the memory.
const RECORD_BYTES_MAX: usize = 256 << 20;

impl Cutter {
    pub(super) fn new(input: Input) -> Self {
        Self { input, buffer: Vec::new(), used: 0, count: 0 }
    }

    /// More bytes from the input.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() > RECORD_BYTES_MAX {
            return Err(format!(
                "record {} is longer than {RECORD_BYTES_MAX} bytes: is its delimiter right?",
                self.count + 1
            ));
        }
        Ok(())
    }

    /// The next record that is whole; at the `end` of input, what remains is one too.
    pub(super) fn cut(&mut self, end: bool) -> Result<Option<Given>, String> {
        let rest = &self.buffer[self.used..];
        if rest.is_empty() {
            return Ok(None);
        }
        let number = self.count + 1;
        let cut = match &self.input {
            Input::Lines { record_end, key_end, empty_is_null } => line(rest, record_end, end)
                .map(|(line, used)| (Ok(keyed(line, key_end.as_deref(), *empty_is_null)), used)),
            Input::Json(place) => line(rest, b"\n", end).map(|(line, used)| (from_json(line, *place), used)),
            Input::Fields(fields) => read_fields(rest, fields, end),
        };
        let Some((given, used)) = cut else { return Ok(None) };
        self.used += used;
        self.count = number;
        given.map(Some).map_err(|why| format!("record {number}: {why}"))
    }
}

/// The bytes before the delimiter, and how many are used up with it.
fn line<'b>(bytes: &'b [u8], delimiter: &[u8], end: bool) -> Option<(&'b [u8], usize)> {
    match find(bytes, delimiter) {
        Some(at) => Some((&bytes[..at], at + delimiter.len())),
        None if end => Some((bytes, bytes.len())),
        None => None,
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    match wanted {
        [] => None,
        [byte] => bytes.iter().position(|other| other == byte),
        _ => bytes.windows(wanted.len()).position(|window| window == wanted),
    }
}

fn keyed(line: &[u8], key_end: Option<&[u8]>, empty_is_null: bool) -> Given {
    let (key, value) = match key_end.and_then(|key_end| find(line, key_end).map(|at| (at, key_end.len()))) {
        Some((at, skip)) => (Some(&line[..at]), &line[at + skip..]),
        None => (None, line),
    };
    let known = |bytes: &&[u8]| !(empty_is_null && bytes.is_empty());
    Given {
        key: key.filter(known).map(<[u8]>::to_vec),
        value: Some(value).filter(known).map(<[u8]>::to_vec),
        ..Given::default()
    }
}

/// `None` when more bytes are needed.
fn read_fields(bytes: &[u8], fields: &[Field], end: bool) -> Option<(Result<Given, String>, usize)> {
    let mut given = Given::default();
    let mut at = 0;
    let mut fields = fields.iter().peekable();
    while let Some(field) = fields.next() {
        let rest = bytes.get(at..).unwrap_or_default();
        match field {
            Field::Text(text) => {
                if !rest.starts_with(text) {
                    if !end && text.starts_with(rest) {
                        return None;
                    }
                    // The last delimiter may be missing at the end of input.
                    if end && rest.is_empty() && fields.peek().is_none() {
                        continue;
                    }
                    let wanted = String::from_utf8_lossy(text);
                    return Some((Err(format!("{wanted:?} does not stand where the format wants it")), bytes.len()));
                }
                at += text.len();
            }
            Field::Sized(token, size) => {
                let Some(bytes) = rest.get(..*size) else {
                    let short = format!("the input ends within a field of {size} bytes");
                    return end.then_some((Err(short), bytes.len()));
                };
                at += size;
                if let Err(why) = put(&mut given, *token, bytes) {
                    return Some((Err(why), at));
                }
            }
            Field::Read(token) => {
                let Some(Field::Text(delimiter)) = fields.peek() else {
                    return Some((Err("a field without an end".to_owned()), bytes.len()));
                };
                let (field, _) = line(rest, delimiter, end)?;
                at += field.len();
                if let Err(why) = put(&mut given, *token, field) {
                    return Some((Err(why), bytes.len()));
                }
            }
        }
    }
    Some((Ok(given), at))
}

fn put(given: &mut Given, token: Token, bytes: &[u8]) -> Result<(), String> {
    let text = || std::str::from_utf8(bytes).map_err(|_| "a topic, number or header that is no UTF-8".to_owned());
    match token {
        Token::Key => given.key = Some(bytes.to_vec()),
        Token::Value => given.value = Some(bytes.to_vec()),
        Token::Topic => given.topic = Some(text()?.to_owned()),
        Token::Partition => {
            let text = text()?;
            given.partition = Some(text.trim().parse().map_err(|_| format!("{text:?} is no partition"))?);
        }
        Token::Timestamp => {
            let text = text()?;
            given.timestamp = Some(text.trim().parse().map_err(|_| format!("{text:?} is no timestamp in ms"))?);
        }
        Token::Headers => {
            for header in text()?.split(',').filter(|header| !header.is_empty()) {
                given.headers.push(parse_header(header));
            }
        }
    }
    Ok(())
}

/// `name=value`; without `=` the value is null.
pub(super) fn parse_header(text: &str) -> (String, Option<Vec<u8>>) {
    match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.as_bytes().to_vec())),
        None => (text.to_owned(), None),
    }
}

fn from_json(line: &[u8], place: Place) -> Result<Given, String> {
    let Value::Object(mut object) = serde_json::from_slice(line).map_err(|error| format!("no JSON: {error}"))? else {
        return Err("an object is wanted, such as {\"key\":\"k\",\"payload\":\"v\"}".to_owned());
    };
    let mut given = Given::default();
    for (name, value) in std::mem::take(&mut object) {
        match (name.as_str(), value) {
            ("key", value) => given.key = json_bytes(value),
            ("payload" | "value", value) => given.value = json_bytes(value),
            ("key_base64", Value::String(text)) => given.key = Some(base64(&name, &text)?),
            ("payload_base64" | "value_base64", Value::String(text)) => given.value = Some(base64(&name, &text)?),
            ("headers", Value::Array(flat)) => {
                let mut flat = flat.into_iter();
                while let Some(name) = flat.next() {
                    let Value::String(name) = name else { return Err("a header's name is a string".to_owned()) };
                    let value = flat.next().ok_or("headers are name, value, name, value …")?;
                    given.headers.push((name, header_bytes(value)?));
                }
            }
            ("headers", Value::Object(named)) => {
                for (name, value) in named {
                    given.headers.push((name, header_bytes(value)?));
                }
            }
            ("partition", value) if value.is_null() => {}
            ("partition", value) => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                given.partition = Some(number.ok_or_else(|| format!("{value} is no partition"))?);
            }
            ("ts" | "timestamp", value) => {
                given.timestamp = Some(value.as_i64().ok_or_else(|| format!("{value} is no timestamp in ms"))?);
            }
            ("topic", Value::String(topic)) => given.topic = Some(topic),
            // What `consume -J` says beside: it is not for the producer to choose.
            ("offset" | "tstype" | "broker", _) => {}
            (other, _) => return Err(format!("{other:?} is no field of a record, or its value is of the wrong kind")),
        }
    }
    if place == Place::Was && given.topic.take().is_some() {
        given.partition = None;
    }
    Ok(given)
}

/// A header's value: as those of keys and payloads, and `{"base64":"…"}` for what is no text.
fn header_bytes(value: Value) -> Result<Option<Vec<u8>>, String> {
    match &value {
        Value::Object(object) if object.len() == 1 => match object.get("base64") {
            Some(Value::String(text)) => base64("a header's base64", text).map(Some),
            _ => Ok(json_bytes(value)),
        },
        _ => Ok(json_bytes(value)),
    }
}

/// Strings as they are, null as null, everything else as its JSON.
fn json_bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.into_bytes()),
        other => Some(other.to_string().into_bytes()),
    }
}

fn base64(name: &str, text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: Option<&str>, value: Option<&str>) -> Given {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        Given { key: bytes(key), value: bytes(value), ..Given::default() }
    }

    /// All records of an input that comes byte by byte.
    fn cut_all(input: Input, bytes: &[u8]) -> Result<Vec<Given>, String> {
        let mut cutter = Cutter::new(input);
        let mut records = Vec::new();
        for byte in bytes {
            cutter.feed(&[*byte])?;
            records.extend(cutter.cut(false)?);
        }
        while let Some(record) = cutter.cut(true)? {
            records.push(record);
        }
        Ok(records)
    }

    fn lines(record_end: &str, key_end: Option<&str>, empty_is_null: bool) -> Input {
        let key_end = key_end.map(|text| text.as_bytes().to_vec());
        Input::Lines { record_end: record_end.as_bytes().to_vec(), key_end, empty_is_null }
    }

    #[test]
    fn lines_are_records_and_the_last_needs_no_end() {
        let records = cut_all(lines("\n", None, false), b"a\n\nb").unwrap();
        assert_eq!(records, [record(None, Some("a")), record(None, Some("")), record(None, Some("b"))]);
    }

    #[test]
    fn keys_end_at_the_first_delimiter_and_long_delimiters_work() {
        let records = cut_all(lines("--", Some("=>"), true), b"k=>v=>w--plain--k=>--").unwrap();
        assert_eq!(records, [record(Some("k"), Some("v=>w")), record(None, Some("plain")), record(Some("k"), None)]);
    }

    #[test]
    fn formats_read_fields_in_any_order() {
        let fields = parse_fields("%p:%k=%v{3};%h\\n").unwrap();
        let records = cut_all(Input::Fields(fields), b"1:a=x\ny;h=1,n\n2:b=zzz;\n").unwrap();
        assert_eq!(
            records,
            [
                Given {
                    partition: Some(1),
                    headers: vec![("h".into(), Some(b"1".to_vec())), ("n".into(), None)],
                    ..record(Some("a"), Some("x\ny"))
                },
                Given { partition: Some(2), ..record(Some("b"), Some("zzz")) },
            ]
        );
    }

    #[test]
    fn a_format_without_an_end_ends_with_the_line() {
        let fields = parse_fields("%k %v").unwrap();
        assert_eq!(
            cut_all(Input::Fields(fields), b"a b c\nd e").unwrap(),
            [record(Some("a"), Some("b c")), record(Some("d"), Some("e"))]
        );
    }

    #[test]
    fn wrong_formats_and_wrong_input_are_refused() {
        for (format, wanted) in [
            ("%k%v", "nothing stands before %v"),
            ("abc", "reads nothing"),
            ("%q", "cannot be read"),
            ("%v{0}", "reads nothing"),
            ("%k{0}%v{0}", "reads nothing"),
        ] {
            assert!(parse_fields(format).unwrap_err().contains(wanted), "{format}");
        }
        let fields = parse_fields("%p %v\\n").unwrap();
        let why = cut_all(Input::Fields(fields), b"1 a\nx b\n").unwrap_err();
        assert_eq!(why, "record 2: \"x\" is no partition");
    }

    #[test]
    fn json_lines_are_what_consume_writes() {
        let text = br#"{"topic":"t","partition":2,"offset":7,"tstype":"create","ts":5,"headers":["a","x","b",null],"key":"k","payload_base64":"/w=="}"#;
        let records = cut_all(Input::Json(Place::Goes), text).unwrap();
        assert_eq!(
            records,
            [Given {
                topic: Some("t".into()),
                partition: Some(2),
                timestamp: Some(5),
                key: Some(b"k".to_vec()),
                value: Some(vec![0xff]),
                headers: vec![("a".into(), Some(b"x".to_vec())), ("b".into(), None)],
            }]
        );
        assert_eq!(
            cut_all(Input::Json(Place::Goes), b"{\"payload\":{\"a\":1}}\n").unwrap(),
            [record(None, Some("{\"a\":1}"))]
        );
        for (wrong, wanted) in
            [("[]", "an object"), ("{", "no JSON"), ("{\"colour\":1}", "colour"), ("{\"ts\":\"x\"}", "timestamp")]
        {
            assert!(cut_all(Input::Json(Place::Goes), wrong.as_bytes()).unwrap_err().contains(wanted), "{wrong}");
        }
    }

    #[test]
    fn where_a_json_record_was_is_not_where_it_goes() {
        let place = |text: &[u8], place| {
            let [given] = &cut_all(Input::Json(place), text).unwrap()[..] else { panic!("one record") };
            (given.topic.clone(), given.partition)
        };
        let told = br#"{"topic":"orders","partition":2,"payload":"v"}"#;
        assert_eq!(place(told, Place::Was), (None, None));
        assert_eq!(place(told, Place::Goes), (Some("orders".to_owned()), Some(2)));
        assert_eq!(place(br#"{"partition":2}"#, Place::Was), (None, Some(2)));
    }

    #[test]
    fn what_consume_writes_is_read_back_byte_for_byte() {
        use crate::cli::record_format::{Shown, envelope};
        let headers = [("text", Some(&b"x"[..])), ("bytes", Some(b"\xff\0")), ("none", None)];
        let shown = Shown {
            topic: "t",
            partition: 2,
            offset: 7,
            leader_epoch: None,
            timestamp: 5,
            log_append_time: false,
            key: Some(b"\xfe"),
            value: Some(b"{\"base64\":\"/w==\"}"),
            headers: &headers,
        };
        let [read] = &cut_all(Input::Json(Place::Goes), envelope(&shown).as_bytes()).unwrap()[..] else {
            panic!("one record")
        };
        assert_eq!((read.key.as_deref(), read.value.as_deref()), (shown.key, shown.value));
        let read: Vec<_> = read.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        assert_eq!(read, headers);
    }

    #[test]
    fn input_without_its_delimiter_does_not_fill_the_memory() {
        let mut cutter = Cutter::new(lines("\n", None, false));
        cutter.feed(&vec![b'x'; RECORD_BYTES_MAX]).unwrap();
        assert_eq!(cutter.cut(false), Ok(None));
        assert!(cutter.feed(b"x").unwrap_err().contains("record 1 is longer"));
    }
}
