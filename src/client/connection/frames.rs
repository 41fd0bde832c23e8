//! Frames out of a stream of bytes: a length, then so many bytes.
//!
//! Pure. Owns the buffer and the bound on a frame. Always: no memory is taken for a length before it was found to be sane, and for
//! a long frame only as its bytes come; a frame is given out without copying it.

use bytes::{Buf as _, Bytes, BytesMut};

/// Read at once when nothing is known of what comes.
const CHUNK_BYTES: usize = 16 * 1024;
/// A read into less would soon be followed by another.
const ROOM_BYTES_MIN: usize = 2 * 1024;
/// Taken at once for an announced frame; longer ones get more as they come.
const ANNOUNCED_BYTES_MAX: usize = 8 << 20;

/// Why the bytes are no frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// The first four bytes are the beginning of something else.
    #[error("it speaks {0}, not Kafka's protocol: is the port right?")]
    Foreign(&'static str),
    /// Below the four bytes of a correlation id.
    #[error("it announced an answer of {0} bytes, which is no length of one")]
    Absurd(i32),
    /// Above the bound.
    #[error("it announced an answer of {bytes} bytes, more than receive.message.max.bytes={bytes_max}")]
    TooLarge {
        /// As announced.
        bytes: i32,
        /// The bound.
        bytes_max: u32,
    },
}

/// Cuts frames.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: BytesMut,
    bytes_max: u32,
}

impl Frames {
    /// For frames of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: u32) -> Self {
        Self { buffer: BytesMut::new(), bytes_max }
    }

    /// The buffer with room at its end for the next read.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        let have = self.buffer.len();
        // The length was judged by `cut` before: here it only says how much to make room for.
        let announced = self.buffer.first_chunk().map_or(0, |length| i32::from_be_bytes(*length));
        let missing = usize::try_from(announced).map_or(0, |length| (length + 4).saturating_sub(have));
        let spare = self.buffer.capacity() - have;
        if spare < missing.max(ROOM_BYTES_MIN) {
            let step = missing.min(ANNOUNCED_BYTES_MAX.max(have)).max(CHUNK_BYTES);
            self.buffer.reserve(step);
        }
        &mut self.buffer
    }

    /// The next whole frame without its length, if it is there.
    pub(super) fn cut(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = judge(*prefix, self.bytes_max)?;
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// The length of a frame, from its four bytes.
pub(super) fn judge(prefix: [u8; 4], bytes_max: u32) -> Result<usize, FrameError> {
    if let Some(name) = foreign(prefix) {
        return Err(FrameError::Foreign(name));
    }
    let bytes = i32::from_be_bytes(prefix);
    match usize::try_from(bytes) {
        Ok(length) if length >= 4 && length <= bytes_max as usize => Ok(length),
        Ok(length) if length >= 4 => Err(FrameError::TooLarge { bytes, bytes_max }),
        _ => Err(FrameError::Absurd(bytes)),
    }
}

/// What else begins so. As lengths these would be more than 350 MB.
fn foreign(prefix: [u8; 4]) -> Option<&'static str> {
    match &prefix {
        b"HTTP" => Some("HTTP"),
        b"SSH-" => Some("SSH"),
        // Alerts and handshakes of TLS 1.0 to 1.3.
        [0x15 | 0x16, 0x03, 0x00..=0x04, _] => Some("TLS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BufMut as _;

    fn framed(body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len()).unwrap();
        [&length.to_be_bytes(), body].concat()
    }

    #[test]
    fn frames_come_out_however_the_stream_is_cut() {
        let stream = [framed(b"abcd"), framed(&[7; 40_000]), framed(b"efghi")].concat();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..50 {
            let (mut frames, mut got, mut rest) = (Frames::new(100_000), Vec::new(), &stream[..]);
            while !rest.is_empty() {
                let most = random.usize(1..20_000);
                let room = frames.room();
                let step = most.min(rest.len()).min(room.capacity() - room.len());
                assert!(step > 0, "there is always room to read on");
                room.put_slice(&rest[..step]);
                rest = &rest[step..];
                while let Some(frame) = frames.cut().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, [&b"abcd"[..], &[7; 40_000], b"efghi"]);
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_memory_is_taken() {
        for (prefix, error) in [
            ((-1i32).to_be_bytes(), FrameError::Absurd(-1)),
            (3i32.to_be_bytes(), FrameError::Absurd(3)),
            (1001i32.to_be_bytes(), FrameError::TooLarge { bytes: 1001, bytes_max: 1000 }),
            (i32::MAX.to_be_bytes(), FrameError::TooLarge { bytes: i32::MAX, bytes_max: 1000 }),
            (*b"HTTP", FrameError::Foreign("HTTP")),
            ([0x15, 3, 3, 0], FrameError::Foreign("TLS")),
        ] {
            let mut frames = Frames::new(1000);
            frames.room().put_slice(&prefix);
            assert_eq!(frames.cut(), Err(error));
        }
    }

    #[test]
    fn a_long_frame_that_does_not_come_takes_little_memory() {
        let mut frames = Frames::new(100 << 20);
        frames.room().put_slice(&(100i32 << 20).to_be_bytes());
        assert_eq!(frames.cut(), Ok(None));
        assert!(frames.room().capacity() <= ANNOUNCED_BYTES_MAX + 2 * CHUNK_BYTES);
    }
}
