//! The five codecs of record batches, with a bound on what decompression may give.
//!
//! Pure. Owns how each codec frames its bytes for Kafka's clients. Always true: output grows as it is decoded and never past
//! the caller's bound, so a few bytes that claim gigabytes cost nothing.
//! Source: Kafka's `CompressionType` and KIP-110 (zstd), KIP-390 (levels); the LZ4 frame format; snappy-java's block stream.

use std::io::{self, Read, Write};

use bytes::{BufMut, BytesMut};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::BatchError;

/// How a batch's records are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Codec {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks in the stream format of snappy-java.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Codec {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// From the low three attribute bits; `None` for a number nobody has defined.
    pub(super) fn from_bits(bits: u16) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }

    /// The number in the attribute bits.
    pub(super) const fn bits(self) -> u16 {
        self as u16
    }

    /// The word in settings and in Kafka's tools.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Reads what [`Codec::name`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == text)
    }
}

/// Level 3 is zstd's own default and Kafka's.
const ZSTD_LEVEL_DEFAULT: i32 = 3;
/// 128 MiB: what zstd's strongest levels (22) announce and what Java's decoder accepts. The window is only touched as far as
/// output fills it, so a frame that announces it and holds little costs address space, not memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The block size snappy-java writes with.
const SNAPPY_BLOCK_BYTES: usize = 32 * 1024;
/// Magic, then version 1 and lowest compatible version 1 as big-endian i32.
const SNAPPY_STREAM_HEADER: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
/// Readers look at the magic alone: some clients write other version numbers.
const SNAPPY_MAGIC_BYTES: usize = 8;
/// A snappy copy of 3 bytes gives at most 64. A block that announces more than that ratio is lying, and is refused before
/// memory is taken for it.
const SNAPPY_RATIO_MAX: usize = 22;

/// Appends the compressed form of `input` to `out`. `level` as the codec counts it; `None` is Kafka's default. Snappy has no
/// levels, and LZ4 here always uses its fast one: its levels change the writer's effort, not what readers see.
pub(super) fn compress(codec: Codec, level: Option<i32>, input: &[u8], out: &mut BytesMut) {
    const IN_MEMORY: &str = "compressing from memory to memory does not fail";
    match codec {
        Codec::None => out.extend_from_slice(input),
        Codec::Gzip => {
            // -1 is Kafka's spelling of "the library's default".
            let level = level
                .and_then(|level| u32::try_from(level).ok())
                .map_or_else(flate2::Compression::default, |level| flate2::Compression::new(level.min(9)));
            let mut encoder = flate2::write::GzEncoder::new(out.writer(), level);
            encoder.write_all(input).and_then(|()| encoder.finish()).expect(IN_MEMORY);
        }
        Codec::Snappy => compress_snappy(input, out),
        Codec::Lz4 => {
            // Exactly what Java's writer emits. Its reader knows independent blocks only.
            let frame = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
            let mut encoder = FrameEncoder::with_frame_info(frame, out.writer());
            encoder.write_all(input).expect(IN_MEMORY);
            encoder.finish().expect(IN_MEMORY);
        }
        Codec::Zstd => {
            let compressed = zstd::bulk::compress(input, level.unwrap_or(ZSTD_LEVEL_DEFAULT)).expect(IN_MEMORY);
            out.extend_from_slice(&compressed);
        }
    }
}

fn compress_snappy(input: &[u8], out: &mut BytesMut) {
    out.extend_from_slice(SNAPPY_STREAM_HEADER);
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(SNAPPY_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block).expect("32 KiB is far below snappy's 4 GiB");
        out.put_u32(u32::try_from(compressed.len()).expect("a block of 32 KiB stays small"));
        out.extend_from_slice(&compressed);
    }
}

/// What `input` decompresses to; `TooLarge` past `bytes_max`. Memory grows with the output, not with announced sizes.
pub(super) fn decompress(codec: Codec, input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => drain(flate2::read::MultiGzDecoder::new(input), bytes_max, "broken gzip stream"),
        Codec::Snappy => decompress_snappy(input, bytes_max),
        Codec::Lz4 => drain(FrameDecoder::new(input), bytes_max, "broken lz4 frame"),
        Codec::Zstd => {
            const BROKEN: &str = "broken zstd frame";
            let open = || -> io::Result<_> {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Ok(decoder)
            };
            drain(open().map_err(|_| BatchError::Unreadable(BROKEN))?, bytes_max, BROKEN)
        }
    }
}

/// Reads `decoder` to its end, and one byte past the bound at most to know that it was passed.
fn drain(decoder: impl Read, bytes_max: usize, broken: &'static str) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    let mut bounded = decoder.take(bytes_max as u64 + 1);
    bounded.read_to_end(&mut out).map_err(|_| BatchError::Unreadable(broken))?;
    if out.len() > bytes_max { Err(BatchError::TooLarge { bytes_max }) } else { Ok(out) }
}

/// snappy-java's stream, or one bare block as old clients send it.
fn decompress_snappy(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    let (magic, _) = SNAPPY_STREAM_HEADER.split_at(SNAPPY_MAGIC_BYTES);
    if !input.starts_with(magic) {
        decompress_snappy_block(input, &mut out, bytes_max)?;
        return Ok(out);
    }
    let cut = BatchError::Unreadable("snappy stream cut short");
    let mut rest = input.get(SNAPPY_STREAM_HEADER.len()..).ok_or_else(|| cut.clone())?;
    while !rest.is_empty() {
        let (&block_bytes, after) = rest.split_first_chunk::<4>().ok_or_else(|| cut.clone())?;
        let (block, after) =
            after.split_at_checked(u32::from_be_bytes(block_bytes) as usize).ok_or_else(|| cut.clone())?;
        decompress_snappy_block(block, &mut out, bytes_max)?;
        rest = after;
    }
    Ok(out)
}

fn decompress_snappy_block(block: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), BatchError> {
    const BROKEN: BatchError = BatchError::Unreadable("broken snappy block");
    let announced = snap::raw::decompress_len(block).map_err(|_| BROKEN)?;
    if announced > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(BROKEN);
    }
    let start = out.len();
    if announced > bytes_max.saturating_sub(start) {
        return Err(BatchError::TooLarge { bytes_max });
    }
    out.resize(start + announced, 0);
    let space = out.get_mut(start..).expect("the vector was just grown");
    let written = snap::raw::Decoder::new().decompress(block, space).map_err(|_| BROKEN)?;
    if written == announced { Ok(()) } else { Err(BROKEN) }
}
