//! The format string of `consume -f`: how one record becomes text.
//!
//! Pure. Owns the tokens, their modifiers and the parse errors. Does not own records: it reads [`Shown`]. Always: a format that
//! parsed renders every record; bytes go out as they are unless a modifier says otherwise. Source: kcat's `-f`, and rpk's
//! modifiers in braces; where the two differ (`%T`), kcat's meaning holds.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::tz::TimeZone;

use super::moments::{rfc3339, strftime};
use crate::types::TimestampMs;

/// A record, as formats see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'r> {
    pub(super) topic: &'r str,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) timestamp: TimestampMs,
    /// Whether the broker set the timestamp.
    pub(super) log_append_time: bool,
    pub(super) key: Option<&'r [u8]>,
    pub(super) value: Option<&'r [u8]>,
    pub(super) headers: &'r [(&'r str, Option<&'r [u8]>)],
}

/// A parsed format.
#[derive(Clone, Debug)]
pub(super) struct Format {
    parts: Vec<Part>,
    zone: TimeZone,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(Vec<u8>),
    Bytes(Field, BytesAs),
    Number(Quantity, NumberAs),
    Moment(MomentAs),
    /// What stands between headers, and between a name and its value.
    Headers(BytesAs),
    Topic,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Key,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    KeyLength,
    ValueLength,
    HeaderCount,
    TopicLength,
    Partition,
    Offset,
    LeaderEpoch,
    Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BytesAs {
    Plain,
    Hex,
    Base64,
    /// A string of JSON, or null.
    Json,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NumberAs {
    Digits,
    Hex,
    /// So many bytes, the highest first or last.
    Big(usize),
    Little(usize),
}

#[derive(Clone, Debug, PartialEq)]
enum MomentAs {
    Rfc3339,
    Strftime(String),
}

/// The tokens, for help.
pub(super) const TOKENS: &str = "\
Tokens of a format:
  %s %v  value          %S %V  its length (-1: null)     %R  its length as 4 bytes, the highest first
  %k     key            %K     its length                %h  headers as name=value,…    %H  how many
  %t     topic          %p     partition                 %o  offset                     %e  leader epoch
  %T     timestamp, ms  %d     timestamp as a date       %%  a percent sign
  \\n \\r \\t \\\\ \\0 \\xNN      as in C
Modifiers: %v{hex} %v{base64} %v{json} %v{text} (%k, %h too) · %o{hex} %S{big32} %S{little16} (8, 16, 32, 64)
           %d{rfc3339} %d{strftime[%F %T]}";

impl Format {
    /// Reads a format. The error points at the place.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let at = text.len() - rest.len();
            rest = &rest[letter.len_utf8()..];
            match letter {
                '%' => {
                    let token =
                        rest.chars().next().ok_or("the format ends with a lone %: write %% for a percent sign")?;
                    rest = &rest[token.len_utf8()..];
                    let modifier = take_modifier(&mut rest).map_err(|why| format!("at {at}: {why}"))?;
                    match part(token, modifier).map_err(|why| format!("at {at}: %{token}: {why}"))? {
                        Part::Text(text) => literal(&mut parts, &text),
                        part => parts.push(part),
                    }
                }
                '\\' => {
                    let byte = escape(&mut rest).map_err(|why| format!("at {at}: {why}"))?;
                    literal(&mut parts, &[byte]);
                }
                letter => literal(&mut parts, letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Ok(Self { parts, zone })
    }

    /// Writes one record.
    pub(super) fn render(&self, record: &Shown<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Topic => out.extend_from_slice(record.topic.as_bytes()),
                Part::Bytes(field, how) => {
                    let bytes = match field {
                        Field::Key => record.key,
                        Field::Value => record.value,
                    };
                    put_bytes(bytes, *how, out);
                }
                Part::Number(quantity, how) => put_number(number(*quantity, record), *how, out),
                Part::Moment(MomentAs::Rfc3339) => out.extend_from_slice(rfc3339(record.timestamp).as_bytes()),
                Part::Moment(MomentAs::Strftime(pattern)) => {
                    out.extend_from_slice(strftime(record.timestamp, pattern, &self.zone).as_bytes());
                }
                Part::Headers(how) => {
                    for (index, (name, value)) in record.headers.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        out.extend_from_slice(name.as_bytes());
                        out.push(b'=');
                        match value {
                            None if *how == BytesAs::Plain => out.extend_from_slice(b"NULL"),
                            value => put_bytes(*value, *how, out),
                        }
                    }
                }
            }
        }
    }
}

fn literal(parts: &mut Vec<Part>, text: &[u8]) {
    match parts.last_mut() {
        Some(Part::Text(before)) => before.extend_from_slice(text),
        _ => parts.push(Part::Text(text.to_vec())),
    }
}

/// The text within braces right behind a token; braces and brackets nest.
fn take_modifier<'t>(rest: &mut &'t str) -> Result<Option<&'t str>, &'static str> {
    let Some(inside) = rest.strip_prefix('{') else { return Ok(None) };
    let mut depth = 1;
    for (at, letter) in inside.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            *rest = &inside[at + 1..];
            return Ok(Some(&inside[..at]));
        }
    }
    Err("a brace is opened and not closed")
}

/// The byte of an escape whose backslash was read.
pub(super) fn escape(rest: &mut &str) -> Result<u8, String> {
    let letter = rest.chars().next().ok_or("a lone backslash at the end: write \\\\ for one")?;
    *rest = &rest[letter.len_utf8()..];
    Ok(match letter {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        'x' => {
            let digits = rest.get(..2).ok_or("\\x wants two hexadecimal digits")?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| "\\x wants two hexadecimal digits")?;
            *rest = &rest[2..];
            byte
        }
        other => return Err(format!("\\{other} means nothing: \\n, \\r, \\t, \\0, \\\\ and \\xNN do")),
    })
}

/// Text with escapes as bytes: what `-D` and `-K` take.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => bytes.push(escape(&mut rest)?),
            letter => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(bytes)
}

fn part(token: char, modifier: Option<&str>) -> Result<Part, String> {
    let bytes = |field| Ok(Part::Bytes(field, bytes_as(modifier)?));
    let digits = |quantity| Ok(Part::Number(quantity, number_as(modifier)?));
    match token {
        's' | 'v' => bytes(Field::Value),
        'k' => bytes(Field::Key),
        'h' => Ok(Part::Headers(bytes_as(modifier)?)),
        'S' | 'V' => digits(Quantity::ValueLength),
        'K' => digits(Quantity::KeyLength),
        'H' => digits(Quantity::HeaderCount),
        'p' => digits(Quantity::Partition),
        'o' => digits(Quantity::Offset),
        'e' => digits(Quantity::LeaderEpoch),
        'T' => digits(Quantity::Timestamp),
        'R' => match modifier {
            None => Ok(Part::Number(Quantity::ValueLength, NumberAs::Big(4))),
            Some(_) => Err("takes no modifier: it is %S{big32}".to_owned()),
        },
        't' => match modifier {
            None => Ok(Part::Topic),
            Some("length") => Ok(Part::Number(Quantity::TopicLength, NumberAs::Digits)),
            Some(other) => Err(format!("no modifier {{{other}}}: {{length}} is one")),
        },
        'd' => match modifier {
            None | Some("rfc3339") => Ok(Part::Moment(MomentAs::Rfc3339)),
            Some(other) => match other.strip_prefix("strftime[").and_then(|inside| inside.strip_suffix(']')) {
                Some(pattern) => Ok(Part::Moment(MomentAs::Strftime(pattern.to_owned()))),
                None => Err(format!("no modifier {{{other}}}: {{rfc3339}} and {{strftime[%F %T]}} are")),
            },
        },
        '%' => match modifier {
            None => Ok(Part::Text(b"%".to_vec())),
            // Not a modifier: the brace belongs to the text.
            Some(inside) => Ok(Part::Text(format!("%{{{inside}}}").into_bytes())),
        },
        _ => Err("no such token; `ringlog consume --help` lists them".to_owned()),
    }
}

fn bytes_as(modifier: Option<&str>) -> Result<BytesAs, String> {
    Ok(match modifier {
        None => BytesAs::Plain,
        Some("hex") => BytesAs::Hex,
        Some("base64") => BytesAs::Base64,
        Some("json") => BytesAs::Json,
        Some("text") => BytesAs::Text,
        Some(other) => return Err(format!("no modifier {{{other}}}: {{hex}}, {{base64}}, {{json}} and {{text}} are")),
    })
}

fn number_as(modifier: Option<&str>) -> Result<NumberAs, String> {
    let Some(name) = modifier else { return Ok(NumberAs::Digits) };
    let wrong =
        || format!("no modifier {{{name}}}: {{hex}}, {{big8}} to {{big64}} and {{little8}} to {{little64}} are");
    let bytes = |bits: &str| match bits {
        "8" => Ok(1),
        "16" => Ok(2),
        "32" => Ok(4),
        "64" => Ok(8),
        _ => Err(wrong()),
    };
    if name == "hex" {
        return Ok(NumberAs::Hex);
    }
    match (name.strip_prefix("big"), name.strip_prefix("little")) {
        (Some(bits), _) => Ok(NumberAs::Big(bytes(bits)?)),
        (_, Some(bits)) => Ok(NumberAs::Little(bytes(bits)?)),
        _ => Err(wrong()),
    }
}

fn number(quantity: Quantity, record: &Shown<'_>) -> i64 {
    let length = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    match quantity {
        Quantity::KeyLength => length(record.key),
        Quantity::ValueLength => length(record.value),
        Quantity::HeaderCount => i64::try_from(record.headers.len()).unwrap_or(i64::MAX),
        Quantity::TopicLength => length(Some(record.topic.as_bytes())),
        Quantity::Partition => i64::from(record.partition),
        Quantity::Offset => record.offset,
        Quantity::LeaderEpoch => i64::from(record.leader_epoch.unwrap_or(-1)),
        Quantity::Timestamp => record.timestamp,
    }
}

fn put_number(number: i64, how: NumberAs, out: &mut Vec<u8>) {
    match how {
        NumberAs::Digits => out.extend_from_slice(number.to_string().as_bytes()),
        NumberAs::Hex => out.extend_from_slice(format!("{number:x}").as_bytes()),
        NumberAs::Big(bytes) => out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]),
        NumberAs::Little(bytes) => out.extend_from_slice(&number.to_le_bytes()[..bytes]),
    }
}

fn put_bytes(bytes: Option<&[u8]>, how: BytesAs, out: &mut Vec<u8>) {
    let given = bytes.unwrap_or_default();
    match how {
        BytesAs::Plain => out.extend_from_slice(given),
        BytesAs::Text => out.extend_from_slice(String::from_utf8_lossy(given).as_bytes()),
        BytesAs::Hex => {
            let mut text = String::with_capacity(2 * given.len());
            for byte in given {
                _ = write!(text, "{byte:02x}");
            }
            out.extend_from_slice(text.as_bytes());
        }
        BytesAs::Base64 => out.extend_from_slice(STANDARD.encode(given).as_bytes()),
        BytesAs::Json => {
            let value = bytes.map(|bytes| String::from_utf8_lossy(bytes));
            out.extend_from_slice(serde_json::json!(value).to_string().as_bytes());
        }
    }
}

/// The envelope of `-J`, one line without its newline: kcat's field names; `key_base64`, `payload_base64` and, for values of headers,
/// `{"base64":"…"}` stand in for what is no UTF-8.
pub(super) fn envelope(record: &Shown<'_>) -> String {
    use serde_json::{Map, Value, json};
    let mut line = Map::new();
    line.insert("topic".into(), json!(record.topic));
    line.insert("partition".into(), json!(record.partition));
    line.insert("offset".into(), json!(record.offset));
    line.insert("tstype".into(), json!(if record.log_append_time { "logappend" } else { "create" }));
    line.insert("ts".into(), json!(record.timestamp));
    // Where it is no text, in base64.
    let text = |bytes: Option<&[u8]>| match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => Ok(Value::Null),
        Some(Ok(text)) => Ok(json!(text)),
        Some(Err(bytes)) => Err(STANDARD.encode(bytes)),
    };
    if !record.headers.is_empty() {
        let value = |bytes: Option<&[u8]>| text(bytes).unwrap_or_else(|base64| json!({ "base64": base64 }));
        let flat: Vec<Value> = record.headers.iter().flat_map(|(name, bytes)| [json!(name), value(*bytes)]).collect();
        line.insert("headers".into(), Value::Array(flat));
    }
    for (name, bytes) in [("key", record.key), ("payload", record.value)] {
        match text(bytes) {
            Ok(text) => _ = line.insert(name.into(), text),
            Err(base64) => _ = line.insert(format!("{name}_base64"), json!(base64)),
        }
    }
    Value::Object(line).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Shown<'_> = Shown {
        topic: "orders",
        partition: 2,
        offset: 41,
        leader_epoch: Some(3),
        timestamp: 1_767_225_600_250,
        log_append_time: false,
        key: Some(b"k1"),
        value: Some(b"v\xff"),
        headers: &[("a", Some(b"x")), ("b", None)],
    };

    fn rendered(format: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Format::parse(format, TimeZone::UTC).unwrap().render(&RECORD, &mut out);
        out
    }

    #[test]
    fn tokens_stand_for_the_parts_of_a_record() {
        assert_eq!(rendered("%t[%p]@%o e%e %k=%s\\n"), b"orders[2]@41 e3 k1=v\xff\n");
        assert_eq!(rendered("%K/%S %h %H %T"), b"2/2 a=x,b=NULL 2 1767225600250");
        assert_eq!(rendered("%d %d{strftime[%F %H:%M]}"), b"2026-01-01T00:00:00.250Z 2026-01-01 00:00");
        assert_eq!(rendered("100%% \\x41\\t\\\\"), b"100% A\t\\");
    }

    #[test]
    fn modifiers_say_how() {
        assert_eq!(rendered("%v{hex} %v{base64} %k{json} %v{text}"), "76ff dv8= \"k1\" v\u{fffd}".as_bytes());
        assert_eq!(rendered("%R"), [0, 0, 0, 2]);
        assert_eq!(rendered("%o{big16}%o{little32}%o{hex}"), [0, 41, 41, 0, 0, 0, b'2', b'9']);
        assert_eq!(rendered("%h{base64}"), b"a=eA==,b=");
    }

    #[test]
    fn a_null_is_nothing_and_its_length_minus_one() {
        let mut out = Vec::new();
        let tombstone = Shown { value: None, key: None, ..RECORD };
        Format::parse("[%k|%s|%S|%v{json}]", TimeZone::UTC).unwrap().render(&tombstone, &mut out);
        assert_eq!(out, b"[||-1|null]");
    }

    #[test]
    fn wrong_formats_are_refused_at_their_place() {
        for (format, wanted) in [
            ("ab%", "lone %"),
            ("ab%q", "at 2: %q: no such token"),
            ("%v{octal}", "no modifier {octal}"),
            ("%v{hex", "opened and not closed"),
            ("%o{big7}", "{big8}"),
            ("\\q", "\\q means nothing"),
            ("\\x4", "two hexadecimal digits"),
            ("%d{yesterday}", "strftime"),
        ] {
            let why = Format::parse(format, TimeZone::UTC).unwrap_err();
            assert!(why.contains(wanted), "{format}: {why}");
        }
    }

    #[test]
    fn the_envelope_keeps_bytes_that_are_no_text() {
        assert_eq!(
            envelope(&RECORD),
            r#"{"headers":["a","x","b",null],"key":"k1","offset":41,"partition":2,"payload_base64":"dv8=","topic":"orders","ts":1767225600250,"tstype":"create"}"#
        );
    }

    #[test]
    fn delimiters_may_be_escaped() {
        assert_eq!(unescape("\\t|\\x00"), Ok(b"\t|\0".to_vec()));
        assert!(unescape("\\").is_err());
    }
}
