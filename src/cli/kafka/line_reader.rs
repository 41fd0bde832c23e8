//! The lines of `kafka-console-producer` as records.
//!
//! Pure. Owns the reader's settings and its complaints. Always: headers stand before the key, the key before the value; a line that
//! cannot be read is named by its number. Source: Kafka 4.4's LineMessageReader, asked.

use bytes::Bytes;

use crate::client::ProducerRecord;

/// Reads lines.
#[derive(Debug)]
pub(super) struct LineReader {
    parse_key: bool,
    parse_headers: bool,
    ignore_error: bool,
    key_separator: String,
    headers_delimiter: String,
    headers_separator: String,
    headers_key_separator: String,
    null_marker: Option<String>,
    line: u64,
}

impl LineReader {
    /// From properties, the last of a key wins. Errors: two separators are the same.
    pub(super) fn new(properties: &[(String, String)]) -> Result<Self, String> {
        let last = |key: &str| properties.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        let flag = |key: &str| last(key).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
        let text = |key: &str, default: &str| last(key).unwrap_or_else(|| default.to_owned());
        let reader = Self {
            parse_key: flag("parse.key"),
            parse_headers: flag("parse.headers"),
            ignore_error: flag("ignore.error"),
            key_separator: text("key.separator", "\t"),
            headers_delimiter: text("headers.delimiter", "\t"),
            headers_separator: text("headers.separator", ","),
            headers_key_separator: text("headers.key.separator", ":"),
            null_marker: last("null.marker"),
            line: 0,
        };
        if reader.headers_delimiter == reader.headers_separator {
            return Err("headers.delimiter and headers.separator may not be equal".to_owned());
        }
        if reader.headers_delimiter == reader.headers_key_separator {
            return Err("headers.delimiter and headers.key.separator may not be equal".to_owned());
        }
        if reader.headers_separator == reader.headers_key_separator {
            return Err("headers.separator and headers.key.separator may not be equal".to_owned());
        }
        if let Some(marker) = &reader.null_marker {
            for (name, separator) in [
                ("key.separator", &reader.key_separator),
                ("headers.separator", &reader.headers_separator),
                ("headers.delimiter", &reader.headers_delimiter),
                ("headers.key.separator", &reader.headers_key_separator),
            ] {
                if marker == separator {
                    return Err(format!("null.marker and {name} may not be equal"));
                }
            }
        }
        Ok(reader)
    }

    /// The record of the next line, which is given without its end; the topic is not set.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<ProducerRecord, String> {
        self.line += 1;
        let mut record = ProducerRecord::to("");
        let mut rest = line;
        if self.parse_headers
            && let Some(headers) = self.part(line, &mut rest, &self.headers_delimiter, "headers delimiter")?
            && !self.is_null(headers)
        {
            for pair in split(headers, self.headers_separator.as_bytes()) {
                self.header(pair, &mut record)?;
            }
        }
        if self.parse_key
            && let Some(key) = self.part(line, &mut rest, &self.key_separator, "key separator")?
        {
            record.key = self.payload(key);
        }
        record.value = self.payload(rest);
        Ok(record)
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        self.null_marker.as_ref().is_some_and(|marker| marker.as_bytes() == bytes)
    }

    fn payload(&self, bytes: &[u8]) -> Option<Bytes> {
        (!self.is_null(bytes)).then(|| Bytes::copy_from_slice(bytes))
    }

    /// Cuts off what stands before `end` in the rest of a line. `None` when it is missing and that is to be ignored.
    fn part<'b>(&self, line: &[u8], rest: &mut &'b [u8], end: &str, what: &str) -> Result<Option<&'b [u8]>, String> {
        match find(rest, end.as_bytes()) {
            Some(at) => {
                let part = &rest[..at];
                *rest = &rest[at + end.len()..];
                Ok(Some(part))
            }
            None if self.ignore_error => Ok(None),
            None => Err(format!("No {what} found on line number {}: '{}'", self.line, String::from_utf8_lossy(line))),
        }
    }

    fn header(&self, pair: &[u8], record: &mut ProducerRecord) -> Result<(), String> {
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match find(pair, self.headers_key_separator.as_bytes()) {
            Some(at) => {
                if let Some(marker) = &self.null_marker
                    && self.is_null(&pair[..at])
                {
                    return Err(format!(
                        "Header keys should not be equal to the null marker '{marker}' as they can't be null"
                    ));
                }
                let value = &pair[at + self.headers_key_separator.len()..];
                record.headers.push(name(&pair[..at]), self.payload(value));
                Ok(())
            }
            None if self.ignore_error => {
                record.headers.push(name(pair), None);
                Ok(())
            }
            None => Err(format!("No header key separator found in pair '{}' on line number {}", name(pair), self.line)),
        }
    }
}

/// The line without `\n` or `\r\n`.
pub(super) fn strip_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn split<'b>(bytes: &'b [u8], separator: &[u8]) -> Vec<&'b [u8]> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while let Some(at) = find(rest, separator).filter(|_| !separator.is_empty()) {
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len()..];
    }
    parts.push(rest);
    // As Java splits: empty parts at the end are none, unless there is nothing else to split.
    while !bytes.is_empty() && parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(properties: &[(&str, &str)]) -> Result<LineReader, String> {
        let owned: Vec<_> = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        LineReader::new(&owned)
    }

    #[test]
    fn headers_keys_and_values_stand_in_a_row() {
        let mut reader = reader(&[("parse.key", "true"), ("parse.headers", "true"), ("null.marker", "NULL")]).unwrap();
        let record = reader.read(b"h1:v1,h2:NULL\tk1\tv1").unwrap();
        assert_eq!(record, ProducerRecord::to("").key("k1").value("v1").header("h1", "v1").header("h2", None::<&str>));
        let record = reader.read(b"NULL\tk2\tNULL").unwrap();
        assert_eq!(record, ProducerRecord::to("").key("k2"));
    }

    #[test]
    fn what_is_missing_is_told_with_its_line() {
        let mut keys = reader(&[("parse.key", "true")]).unwrap();
        assert!(keys.read(b"k\tv").is_ok());
        assert_eq!(keys.read(b"nokey").unwrap_err(), "No key separator found on line number 2: 'nokey'");
        let mut headers = reader(&[("parse.headers", "true")]).unwrap();
        assert_eq!(headers.read(b"h1\tv1").unwrap_err(), "No header key separator found in pair 'h1' on line number 1");
        let mut both = reader(&[("parse.key", "true"), ("parse.headers", "true")]).unwrap();
        assert_eq!(both.read(b"h:v\tnokey").unwrap_err(), "No key separator found on line number 1: 'h:v\tnokey'");
        let mut lenient = reader(&[("parse.key", "true"), ("ignore.error", "true")]).unwrap();
        assert_eq!(lenient.read(b"nokey").unwrap(), ProducerRecord::to("").value("nokey"));
    }

    #[test]
    fn headers_end_with_the_last_that_is_not_empty() {
        let mut reader = reader(&[("parse.headers", "true"), ("null.marker", "NULL")]).unwrap();
        assert_eq!(reader.read(b"h1:v1,\tv").unwrap(), ProducerRecord::to("").value("v").header("h1", "v1"));
        assert_eq!(reader.read(b"\tv").unwrap_err(), "No header key separator found in pair '' on line number 2");
        assert_eq!(
            reader.read(b"NULL:v1\tv").unwrap_err(),
            "Header keys should not be equal to the null marker 'NULL' as they can't be null"
        );
    }

    #[test]
    fn separators_that_are_the_same_are_refused() {
        let equal = reader(&[("null.marker", "X"), ("key.separator", "X")]).unwrap_err();
        assert_eq!(equal, "null.marker and key.separator may not be equal");
    }

    #[test]
    fn line_ends_are_no_part_of_a_record() {
        assert_eq!(strip_line_end(b"a\r\n"), b"a");
        assert_eq!(strip_line_end(b"a"), b"a");
    }
}
