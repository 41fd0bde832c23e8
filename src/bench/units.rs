//! Sizes, times and counts as people write and read them.
//!
//! Pure. Owns the spelling of quantities in arguments, tables and reports. Always true: what cannot be read exactly is
//! refused with a sentence that shows a right example; nothing is rounded on the way in.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Splits `12.5MiB` into its number and the letters behind it.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end =
        text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number, unit.trim().to_ascii_lowercase()))
}

/// Reads `512`, `1KiB`, `64k`, `1.5MB`: powers of 1024 with an `i` or as a single letter, of 1000 with a bare `B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size; write it as 512, 1KiB, 64k or 1MB");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor: f64 = match unit.as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = number * factor;
    if bytes.fract() == 0.0 && bytes < 9e15 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Reads `250us`, `5ms`, `60s`, `1.5m`, `1h`, and what [`parse_span`] does; a bare number counts `bare` (the unit the option
/// documents).
pub fn parse_duration(text: &str, bare: Duration) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write it as 5ms, 60s or 10m");
    let one = split(text).and_then(|(number, unit)| {
        let seconds = match unit.as_str() {
            "" => bare.as_secs_f64(),
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        Some(seconds * number)
    });
    let seconds = one.or_else(|| parse_span(text).map(|span| span.as_secs_f64())).ok_or_else(wrong)?;
    // A century is beyond every use, and keeps all sums of times far from their bounds.
    if (0.0..=3.2e9).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

/// Reads several units in a row, as in `1h30m`, and ISO 8601, as in `PT1H30M` and `P1DT2H`. A day has 24 hours. It may be negative.
pub fn parse_span(text: &str) -> Option<SignedDuration> {
    let span: Span = text.trim().parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// Reads `60s` and the like; a bare number is seconds.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_secs(1))
}

/// Reads `5ms` and the like; a bare number is milliseconds.
pub fn parse_millis(text: &str) -> Result<Duration, String> {
    parse_duration(text, Duration::from_millis(1))
}

/// Reads `50000`, `50k`, `1.5M`: powers of 1000.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no count; write it as 50000, 50k or 1.5M");
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = match unit.as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(wrong()),
    };
    Ok(number * factor)
}

/// Three digits that count, and no exponent: `0.42`, `4.20`, `42.0`, `420`, `4200`.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.001 => "<0.001".to_owned(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `850 µs`, `1.25 ms`, `2.10 s`.
pub fn micros(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => format!("{} µs", digits(value)),
        size if size < 1e6 => format!("{} ms", digits(value / 1e3)),
        _ => format!("{} s", digits(value / 1e6)),
    }
}

/// `512 B`, `1.50 KB`, `42.0 MB`: powers of 1000, as rates are counted.
pub fn bytes(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => format!("{value:.0} B"),
        size if size < 1e6 => format!("{} KB", digits(value / 1e3)),
        size if size < 1e9 => format!("{} MB", digits(value / 1e6)),
        _ => format!("{} GB", digits(value / 1e9)),
    }
}

/// `512 B`, `1 KiB`, `64 KiB`: powers of 1024, as sizes are set.
pub fn size(bytes: u64) -> String {
    let exact = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    match bytes {
        _ if exact(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if exact(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if exact(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `950`, `12.3 k`, `1.20 M`.
pub fn count(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => digits(value),
        size if size < 1e6 => format!("{} k", digits(value / 1e3)),
        size if size < 1e9 => format!("{} M", digits(value / 1e6)),
        _ => format!("{} G", digits(value / 1e9)),
    }
}

/// `5 ms`, `60 s`, `10 min`: as an option would be written.
pub fn duration(value: Duration) -> String {
    let seconds = value.as_secs_f64();
    match seconds {
        _ if seconds == 0.0 => "0".to_owned(),
        _ if seconds < 1.0 => micros(seconds * 1e6),
        _ if seconds >= 120.0 && seconds % 60.0 == 0.0 => format!("{} min", seconds / 60.0),
        _ => format!("{} s", digits(seconds)),
    }
}

/// `2026-11-30T02:45:44Z`
pub fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| String::new(), |time| time.round(jiff::Unit::Second).unwrap_or(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("512", 512), ("1KiB", 1024), ("64k", 65_536), ("1MB", 1_000_000), ("1.5 MiB", 1_572_864), ("1_000", 1000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "k", "1.5", "-1", "1KiBs", "99999999999999999999g", "NaN", "1e3"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_the_unit_of_their_option_when_bare() {
        assert_eq!(parse_seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_millis("5"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_seconds("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_millis("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_seconds("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_seconds("PT1H30M"), Ok(Duration::from_secs(5400)));
        assert!(parse_seconds("soon").is_err() && parse_seconds("1e99s").is_err());
        assert!(parse_seconds("-5s").is_err() && parse_seconds("-5").is_err());
    }

    #[test]
    fn counts_are_powers_of_a_thousand() {
        assert_eq!(parse_count("50k"), Ok(50_000.0));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000.0));
        assert!(parse_count("many").is_err());
    }

    #[test]
    fn quantities_print_with_the_digits_that_count() {
        assert_eq!(micros(850.0), "850 µs");
        assert_eq!(micros(1250.0), "1.25 ms");
        assert_eq!(bytes(42_000_000.0), "42.0 MB");
        assert_eq!(size(65_536), "64 KiB");
        assert_eq!(size(1000), "1000 B");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(grouped(12), "12");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(duration(Duration::from_millis(5)), "5.00 ms");
        assert_eq!(duration(Duration::from_secs(600)), "10 min");
    }
}
