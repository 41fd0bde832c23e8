//! From appended batches to bytes on the device: the writer task of one log.
//!
//! Shell. Owns the queue of batches not yet given to the device, the writes in flight, allocation ahead of the end. Does not
//! own offsets or rules of producers (`Log::append` has decided all that), nor syncing (`flusher`). Always: `written` is the
//! contiguous prefix of completed writes; a write goes only where blocks are allocated; a failed write ends the log.
//!
//! **Batching comes from the device.** Whatever was appended while a write ran goes into the next one, in one buffer: the
//! only copy of each byte. Nothing waits for company.
//!
//! **The tail rewrite rule.** Direct writes are whole blocks of 4 KiB, batches end anywhere. The block in which the log ends
//! is padded with zeroes and written again when more comes, beginning with the same bytes it held before. Claim: whatever
//! power loss does to that second write, every batch that the first one completed is intact. Proof: a device writes each
//! sector (512 B or more) wholly or not at all, so after the loss every sector of the block is the old or the new one. A
//! batch written before lies in sectors of which old and new agree in all of its bytes, because the new block begins with
//! the old one's bytes and differs only after them. Two things make "old" unique: only one write that touches a block is in
//! flight at a time (the next write begins on the block where the previous one ended only after that completed: the head
//! chain), and nothing but appends writes below the allocated end. When much is pending, a write ends on a block boundary
//! instead; then the next one touches none of its blocks and may overlap it.
//!
//! **A full device.** Blocks are allocated ahead (in steps that double from 128 KiB, so a small log stays small), and
//! allocation (and the making of a file) is the only thing that can meet ENOSPC. From then on only appends are taken that fit
//! the blocks there are; nothing taken is ever given back, and the allocation is tried again once a second while somebody
//! asks. A file that cannot be opened because descriptors or memory ran out is the same to a log.
//!
//! **Zeroes ahead of small writes.** The first write to an allocated block also changes the file system's map of the file,
//! and one that begins on the written tail and ends beyond it holds the inode alone: ext4 refuses that to a caller that
//! cannot sleep, so io_uring hands it to a thread of its own. Where a log's writes are small, its next blocks are therefore
//! written once in long writes, before they are needed and before the allocated end moves, and most appends only overwrite.
//! It changes nothing for recovery: the blocks read as zeroes before and after. Where writes are long it is not done: it would
//! double what the device does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use rustix::io::Errno;

use crate::rt::file::{AlignedBuf, BLOCK_BYTES, DirectFile, IO_BYTES_MAX};
use crate::rt::{self, Event};
use crate::types::Offset;

use super::Log;
use super::runtime::Shared;
use super::segment::{Phase, Segment};

/// From this much pending on, a write ends on a block boundary and another may overlap it.
const OVERLAP_PENDING_BYTES: usize = 256 << 10;
/// Overlapping writes of one log: two keep the device busy while one completes; more only queued.
const WRITES_IN_FLIGHT_MAX: usize = 2;
/// The first allocation of a segment.
const ALLOCATION_FIRST_BYTES: u64 = 128 << 10;
/// The longest step of zeroes.
const PREWRITE_STEP_BYTES_MAX: u64 = 1 << 20;
/// One write of zeroes: long enough to cost little; an append waits for one at most.
const PREWRITE_BYTES: usize = 256 << 10;
/// How often a full device is asked again.
pub(super) const NO_SPACE_RETRY: Duration = Duration::from_secs(1);
/// A resting log keeps a staging buffer up to this long for its last block; a longer one is cut down to the block.
const HEAD_KEPT_BYTES_MAX: usize = 16 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A batch on its way to the device; empty: the segment's file is to be made.
struct Pending {
    segment: Rc<Segment>,
    bytes: Bytes,
    /// Log end after it.
    end_offset: Offset,
    /// End of it in the segment.
    end_bytes: u64,
}

/// Why the writer stopped.
enum Stop {
    Closed,
    Failed(String),
}

/// The writer's side of a log.
#[derive(Default)]
pub(super) struct Appender {
    pending: RefCell<VecDeque<Pending>>,
    pending_bytes: Cell<usize>,
    wake: Event,
    /// Held while something is pending or in flight, so that the runtime minds the shard.
    work: RefCell<Option<rt::Work>>,
    is_running: Cell<bool>,
    is_stopping: Cell<bool>,
    /// When the device last refused an allocation; `None` while there is space.
    full_since: Cell<Option<Instant>>,
    is_allocating: Cell<bool>,
    /// Writes since the last allocation, and their bytes.
    writes: Cell<(u64, u64)>,
    /// The last block written, while it is partly filled: its bytes begin the next write.
    head: RefCell<Option<AlignedBuf>>,
}

impl Appender {
    /// Whether an append that ends at `end_bytes` of `segment` must be refused.
    pub(super) fn refuses(&self, segment: &Segment, end_bytes: u64) -> bool {
        self.is_full() && end_bytes > segment.allocated.get()
    }

    /// Whether the device refused the last allocation.
    pub(super) fn is_full(&self) -> bool {
        self.full_since.get().is_some()
    }

    /// Returns whether that is news.
    pub(super) fn set_full(&self, is_full: bool) -> bool {
        self.full_since.replace(is_full.then(Instant::now)).is_some() != is_full
    }

    /// Whether the file of a segment may still grow ahead of its data.
    pub(super) fn is_allocating(&self) -> bool {
        self.is_allocating.get()
    }

    /// Whether writes since the last allocation were on average at most `bytes_max` long.
    fn writes_are_small(&self, bytes_max: u32) -> bool {
        let (writes, bytes) = self.writes.get();
        writes > 0 && bytes <= writes * u64::from(bytes_max)
    }

    /// Gives up what the device will not get.
    pub(super) fn forget_pending(&self, shared: &Shared) {
        let dropped = std::mem::take(&mut *self.pending.borrow_mut());
        shared.count(|stats| stats.pending_bytes -= self.pending_bytes.take() as u64);
        drop(dropped);
    }

    /// Gives back the staging buffer's memory but for the block that will be written again.
    pub(super) fn rest(&self, shared: &Shared) {
        let mut head = self.head.borrow_mut();
        if let Some(long) = head.take_if(|buffer| buffer.as_slice().len() > HEAD_KEPT_BYTES_MAX) {
            let block = last_block(&long);
            let mut short = AlignedBuf::new(BLOCK_BYTES);
            short.as_mut_slice().copy_from_slice(block);
            shared.count(|stats| stats.append_copied_bytes += BLOCK);
            *head = Some(short);
        }
    }
}

/// Queues a batch that was just appended, which ends at `end_offset`.
pub(super) fn push(log: &Rc<Log>, segment: &Rc<Segment>, bytes: Bytes, end_offset: Offset) {
    let appender = &log.appender;
    appender.pending_bytes.set(appender.pending_bytes.get() + bytes.len());
    log.shared().count(|stats| stats.pending_bytes += bytes.len() as u64);
    let end_bytes = segment.bytes.get();
    appender.pending.borrow_mut().push_back(Pending { segment: Rc::clone(segment), bytes, end_offset, end_bytes });
    appender.work.borrow_mut().get_or_insert_with(rt::work);
    if appender.is_running.replace(true) {
        appender.wake.notify_all();
    } else {
        rt::spawn(run(Rc::clone(log)));
    }
}

/// Asks a full device again, at most once a second.
pub(super) fn retry_space(log: &Rc<Log>, segment: &Rc<Segment>, end_bytes: u64) {
    let is_due = log.appender.full_since.get().is_some_and(|since| since.elapsed() >= NO_SPACE_RETRY);
    if let Some(file) = segment.open_writer().filter(|_| is_due) {
        allocate(log, segment, &file, needed_now(log, segment, end_bytes));
    }
}

/// Ends the writer. What is pending stays unwritten.
pub(super) async fn stop(log: &Log) {
    log.appender.is_stopping.set(true);
    log.appender.wake.notify_all();
    log.changed.notify_all();
    while log.appender.is_running.get() || log.appender.is_allocating.get() {
        log.changed.wait().await;
    }
    log.appender.forget_pending(log.shared());
    *log.appender.head.borrow_mut() = None;
}

async fn run(log: Rc<Log>) {
    let guard = TaskGuard { log: &log, is_running: &log.appender.is_running };
    let mut writer = Writer { log: Rc::clone(&log), target: None, in_flight: VecDeque::new() };
    let stop = writer.run().await;
    // Nothing is dropped mid-flight: the buffers belong to the kernel until it gives them back.
    for write in writer.in_flight.drain(..) {
        drop(write.result().await);
    }
    drop(guard);
    *log.appender.work.borrow_mut() = None;
    if let Stop::Failed(reason) = stop {
        log.fail(reason);
    }
}

/// Marks the end of a log's own task; a log whose task panicked is offline, not stuck.
pub(super) struct TaskGuard<'a> {
    pub(super) log: &'a Log,
    pub(super) is_running: &'a Cell<bool>,
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.is_running.set(false);
        self.log.changed.notify_all();
        if std::thread::panicking() {
            self.log.fail("a fault of the broker: see the panic above".to_owned());
        }
    }
}

/// A write given to the kernel.
struct InFlight {
    state: WriteState,
    /// End of it in the segment.
    end_bytes: u64,
    /// End of the last batch that is whole with it.
    whole: Option<(Offset, u64)>,
}

enum WriteState {
    /// It holds its turn until it is polled, so nothing else may be awaited meanwhile that waits for others' turns.
    Running(Pin<Box<dyn Future<Output = io::Result<AlignedBuf>>>>),
    Done(io::Result<AlignedBuf>),
}

impl InFlight {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let WriteState::Running(write) = &mut self.state {
            self.state = WriteState::Done(ready!(write.as_mut().poll(context)));
        }
        Poll::Ready(())
    }

    async fn result(mut self) -> io::Result<AlignedBuf> {
        poll_fn(|context| self.poll(context)).await;
        match self.state {
            WriteState::Done(result) => result,
            WriteState::Running(_) => unreachable!("polled to its end"),
        }
    }
}

/// Where the writer writes.
struct Target {
    segment: Rc<Segment>,
    file: DirectFile,
    /// Everything below is given to the kernel.
    position: u64,
}

struct Writer {
    log: Rc<Log>,
    target: Option<Target>,
    in_flight: VecDeque<InFlight>,
}

impl Writer {
    async fn run(&mut self) -> Stop {
        loop {
            while self.may_start() {
                if let Err(stop) = self.start().await {
                    return stop;
                }
            }
            if !self.in_flight.is_empty() {
                if let Err(stop) = self.finish().await {
                    return stop;
                }
            } else if self.log.appender.is_stopping.get() {
                return Stop::Closed;
            } else {
                let wake = self.log.appender.wake.wait();
                *self.log.appender.work.borrow_mut() = None;
                wake.await;
            }
        }
    }

    /// Whether a write may begin now: the head chain, and company for a write that would overlap.
    fn may_start(&self) -> bool {
        let appender = &self.log.appender;
        let pending = appender.pending.borrow();
        let Some(first) = pending.front() else { return false };
        if self.log.is_offline() {
            return false;
        }
        if self.in_flight.is_empty() {
            return !appender.is_stopping.get();
        }
        let has_room = |target: &Target| {
            target.position.is_multiple_of(BLOCK)
                && target.segment.allocated.get() >= target.position + OVERLAP_PENDING_BYTES as u64
        };
        let same = self.target.as_ref().filter(|target| Rc::ptr_eq(&target.segment, &first.segment));
        self.in_flight.len() < WRITES_IN_FLIGHT_MAX
            && self.log.shared().writes.is_free()
            && appender.pending_bytes.get() >= OVERLAP_PENDING_BYTES
            && same.is_some_and(has_room)
    }

    /// Begins the next write: opens its segment, waits for blocks, gathers batches into one buffer.
    async fn start(&mut self) -> Result<(), Stop> {
        let Some(segment) = self.log.appender.pending.borrow().front().map(|first| Rc::clone(&first.segment)) else {
            return Ok(());
        };
        self.open(&segment).await?;
        let Some(target) = &mut self.target else { return Ok(()) };
        let head_bytes = target.position % BLOCK;
        let wanted = self.log.pending_bytes_of(&segment, IO_BYTES_MAX);
        if wanted == 0 {
            self.log.appender.pending.borrow_mut().pop_front();
            return Ok(());
        }
        let overlaps = !self.in_flight.is_empty();
        if !overlaps {
            wait_for_blocks(&self.log, &segment, &target.file, target.position + wanted as u64).await?;
        }
        let head = self.head_block(head_bytes).await?;
        let permit = match self.log.shared().writes.try_acquire() {
            Some(permit) => permit,
            None if overlaps => return Ok(()),
            None => self.log.shared().writes.acquire().await,
        };
        if self.log.is_offline() {
            return Err(Stop::Closed);
        }
        let Some(target) = &mut self.target else { return Ok(()) };
        // More may have come while we waited; it goes along, as far as there are blocks.
        let wanted = self.log.pending_bytes_of(&segment, IO_BYTES_MAX);
        let room = usize::try_from(segment.allocated.get() - target.position).unwrap_or(usize::MAX);
        let head_bytes = usize::try_from(head_bytes).expect("less than a block");
        let mut taken_bytes = wanted.min(room).min(IO_BYTES_MAX - head_bytes);
        if taken_bytes < wanted {
            taken_bytes = taken_bytes.saturating_sub((head_bytes + taken_bytes) % BLOCK_BYTES);
        }
        let (buffer, whole) = gather(&self.log, head, head_bytes, taken_bytes);
        let start_position = target.position - head_bytes as u64;
        target.position += taken_bytes as u64;

        let file = target.file.clone();
        let state = WriteState::Running(Box::pin(async move {
            let _permit = permit;
            file.write(buffer, start_position).await
        }));
        let mut write = InFlight { state, end_bytes: target.position, whole };
        // The first poll gives it to the kernel.
        futures_lite::future::poll_once(poll_fn(|context| write.poll(context))).await;
        self.in_flight.push_back(write);
        allocate_ahead(&self.log, target);
        Ok(())
    }

    /// Waits for the oldest write; what it completed is written. Those behind it give back their turns as they end.
    async fn finish(&mut self) -> Result<(), Stop> {
        poll_fn(|context| {
            let mut writes = self.in_flight.iter_mut().map(|write| write.poll(context));
            let oldest = writes.next().unwrap_or(Poll::Ready(()));
            writes.for_each(drop);
            oldest
        })
        .await;
        let Some((write, target)) = self.in_flight.pop_front().zip(self.target.as_ref()) else { return Ok(()) };
        let (end_bytes, whole) = (write.end_bytes, write.whole);
        let buffer = match write.result().await {
            Ok(buffer) => buffer,
            Err(error) => return Err(failed(&self.log, &target.segment, "write", &error)),
        };
        let written_bytes = buffer.as_slice().len() as u64;
        let (writes, bytes) = self.log.appender.writes.get();
        self.log.appender.writes.set((writes + 1, bytes + written_bytes));
        self.log.shared().count(|stats| {
            stats.writes += 1;
            stats.written_bytes += written_bytes;
        });
        if !end_bytes.is_multiple_of(BLOCK) {
            *self.log.appender.head.borrow_mut() = Some(buffer);
        }
        if let Some((end_offset, end_bytes)) = whole {
            target.segment.written.set(end_bytes);
            self.log.on_written(end_offset);
        }
        Ok(())
    }

    /// Makes `segment` the target. Nothing is in flight when it changes.
    async fn open(&mut self, segment: &Rc<Segment>) -> Result<(), Stop> {
        if self.target.as_ref().is_some_and(|target| Rc::ptr_eq(&target.segment, segment)) {
            return Ok(());
        }
        assert!(self.in_flight.is_empty(), "a segment ends when its writes are done");
        let is_new = !segment.exists.get();
        let file = loop {
            match segment.writer(&self.log.place.dir).await {
                Ok(file) => break file,
                Err(error) if is_shortage(&error) => {
                    self.log.on_shortage(&error);
                    rt::sleep(NO_SPACE_RETRY).await;
                    if self.log.appender.is_stopping.get() {
                        return Err(Stop::Closed);
                    }
                }
                Err(error) => return Err(failed(&self.log, segment, "open", &error)),
            }
        };
        if is_new {
            self.log.on_file_created();
        }
        *self.log.appender.head.borrow_mut() = None;
        let position = segment.written.get();
        let had_target = self.target.replace(Target { segment: Rc::clone(segment), file, position }).is_some();
        if had_target {
            // The segment before this one is complete: cut, sync and index it.
            super::flusher::start(&self.log);
        }
        Ok(())
    }

    /// The block in which the log ends, to be written again; `None` when the log ends on a boundary.
    async fn head_block(&self, head_bytes: u64) -> Result<Option<AlignedBuf>, Stop> {
        let kept = self.log.appender.head.borrow_mut().take();
        if head_bytes == 0 || kept.is_some() {
            return Ok(kept.filter(|_| head_bytes > 0));
        }
        let Some(target) = &self.target else { return Ok(None) };
        let slice = target.file.read(target.position - head_bytes, BLOCK_BYTES).await;
        let slice = slice.map_err(|error| failed(&self.log, &target.segment, "read", &error))?;
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        let head_bytes = usize::try_from(head_bytes).expect("less than a block");
        match (block.as_mut_slice().get_mut(..head_bytes), slice.as_slice().get(..head_bytes)) {
            (Some(room), Some(head)) => room.copy_from_slice(head),
            _ => return Err(Stop::Failed(format!("{} is shorter than its log", self.log.file_name(&target.segment)))),
        }
        Ok(Some(block))
    }
}

/// Moves `taken_bytes` of pending batches behind the head into one buffer, padded with zeroes to a block; and the end of
/// the last batch that is whole with it.
fn gather(
    log: &Log,
    head: Option<AlignedBuf>,
    head_bytes: usize,
    taken_bytes: usize,
) -> (AlignedBuf, Option<(Offset, u64)>) {
    let buffer_bytes = (head_bytes + taken_bytes).next_multiple_of(BLOCK_BYTES);
    let mut copied_bytes = taken_bytes;
    let mut buffer = match head {
        // Still the same block: its bytes are in place.
        Some(block) if block.as_slice().len() == buffer_bytes && buffer_bytes == BLOCK_BYTES => block,
        Some(block) => {
            let mut buffer = AlignedBuf::new(buffer_bytes);
            let (room, head) = (buffer.as_mut_slice().get_mut(..head_bytes), last_block(&block).get(..head_bytes));
            room.expect("a head is less than a block").copy_from_slice(head.expect("a head is less than a block"));
            copied_bytes += head_bytes;
            buffer
        }
        None => AlignedBuf::new(buffer_bytes),
    };
    let room = buffer.as_mut_slice().get_mut(head_bytes..).expect("the buffer is longer than the head");
    let (mut room, padding) = room.split_at_mut(taken_bytes);
    padding.fill(0);
    let mut whole = None;
    let mut pending = log.appender.pending.borrow_mut();
    while !room.is_empty() {
        let first = pending.front_mut().expect("as many bytes are pending as were taken");
        let piece_bytes = first.bytes.len().min(room.len());
        let (piece, rest) = room.split_at_mut(piece_bytes);
        first.bytes.copy_to_slice(piece);
        room = rest;
        if first.bytes.is_empty() {
            whole = Some((first.end_offset, first.end_bytes));
            pending.pop_front();
        }
    }
    log.appender.pending_bytes.set(log.appender.pending_bytes.get() - taken_bytes);
    log.shared().count(|stats| {
        stats.pending_bytes -= taken_bytes as u64;
        stats.append_copied_bytes += copied_bytes as u64;
    });
    (buffer, whole)
}

/// Waits until the file has blocks up to `end_bytes`.
async fn wait_for_blocks(log: &Rc<Log>, segment: &Rc<Segment>, file: &DirectFile, end_bytes: u64) -> Result<(), Stop> {
    while segment.allocated.get() < end_bytes {
        if log.appender.is_stopping.get() {
            return Err(Stop::Closed);
        }
        if log.is_offline() {
            return Err(Stop::Closed);
        }
        let changed = log.changed.wait();
        allocate(log, segment, file, needed_now(log, segment, end_bytes));
        changed.await;
        if log.appender.is_full() && !log.appender.is_allocating() {
            rt::sleep(NO_SPACE_RETRY).await;
        }
    }
    Ok(())
}

/// Allocates the next step in the background before it is needed, and fills it with zeroes where writes are small.
fn allocate_ahead(log: &Rc<Log>, target: &Target) {
    let (step, allocated) = (allocation_step(log, &target.segment), target.segment.allocated.get());
    let segment_end = u64::from(log.settings.borrow().segment_bytes);
    let is_active = target.segment.phase.get() == Phase::Active;
    let is_prewriting = log.appender.writes_are_small(log.settings.borrow().prewrite_bytes_max);
    let step = if is_prewriting { prewrite_step(allocated) } else { step };
    if is_active && allocated < segment_end && allocated - target.position < step / 2 {
        allocate(log, &target.segment, &target.file, Ahead { needed: allocated + BLOCK, step, is_prewriting });
    }
}

/// What to allocate.
struct Ahead {
    /// Blocks up to here, even on a device that is nearly full.
    needed: u64,
    /// So many bytes beyond what there is, if it has them.
    step: u64,
    /// Whether zeroes are written there.
    is_prewriting: bool,
}

/// Begins to allocate blocks, unless that is under way.
fn allocate(log: &Rc<Log>, segment: &Rc<Segment>, file: &DirectFile, ahead: Ahead) {
    if log.appender.is_allocating.replace(true) {
        return;
    }
    log.appender.writes.set((0, 0));
    let (log, segment, file) = (Rc::clone(log), Rc::clone(segment), file.clone());
    rt::spawn(async move {
        // Whole blocks, though the file may end anywhere after a clean stop, and never less than there is.
        let allocated = segment.allocated.get();
        let needed = ahead.needed.max(allocated).next_multiple_of(BLOCK);
        let segment_end = u64::from(log.settings.borrow().segment_bytes).next_multiple_of(BLOCK);
        let end = (allocated + ahead.step).next_multiple_of(BLOCK).min(segment_end).max(needed);
        let mut result = file.preallocate(end).await.map(|()| end);
        if result.as_ref().is_err_and(is_no_space) && end > needed {
            result = file.preallocate(needed).await.map(|()| needed);
        }
        match result {
            Ok(allocated) => {
                log.on_space();
                let prewritten =
                    if ahead.is_prewriting { prewrite(&log, &segment, &file, allocated).await } else { Ok(()) };
                match prewritten {
                    // A file system that takes new space for every write: what is appended there will meet it.
                    Err(error) if !is_no_space(&error) => {
                        log.fail(format!("write zeroes {}: {error}", log.file_name(&segment)));
                    }
                    _ => segment.allocated.set(allocated),
                }
            }
            Err(error) if is_no_space(&error) => log.on_shortage(&error),
            Err(error) => log.fail(format!("allocate {}: {error}", log.file_name(&segment))),
        }
        log.appender.is_allocating.set(false);
        log.changed.notify_all();
    });
}

/// Writes zeroes from the end of the blocks in use to `end`. Appends follow piece by piece: no write of theirs meets one of
/// these. Leaves the rest as it is when more is pending than there is room for, the segment takes no more, or another log of
/// the shard is at it: many at once would hold much memory and keep appends from the device.
async fn prewrite(log: &Rc<Log>, segment: &Rc<Segment>, file: &DirectFile, end: u64) -> io::Result<()> {
    if !log.shared().prewrites.is_free() {
        return Ok(());
    }
    let _only_one = log.shared().prewrites.acquire().await;
    let mut buffer = AlignedBuf::new(0);
    loop {
        let _permit = log.shared().writes.acquire().await;
        let position = segment.allocated.get().next_multiple_of(BLOCK);
        let room = position.saturating_sub(segment.written.get());
        let is_wanted = segment.phase.get() == Phase::Active && !log.is_offline() && !log.appender.is_stopping.get();
        if position >= end || !is_wanted || log.appender.pending_bytes.get() as u64 > room {
            return Ok(());
        }
        let bytes = usize::try_from(end - position).map_or(PREWRITE_BYTES, |left| left.min(PREWRITE_BYTES));
        if buffer.as_slice().len() != bytes {
            buffer = AlignedBuf::new(bytes);
            buffer.as_mut_slice().fill(0);
        }
        buffer = file.write(buffer, position).await?;
        log.shared().count(|stats| stats.prewritten_bytes += bytes as u64);
        segment.allocated.set(position + bytes as u64);
        log.changed.notify_all();
    }
}

/// A quarter of what there is: so little more of a small log is written than it holds.
fn prewrite_step(allocated: u64) -> u64 {
    (allocated / 4).next_multiple_of(BLOCK).clamp(ALLOCATION_FIRST_BYTES, PREWRITE_STEP_BYTES_MAX)
}

/// Somebody waits: no zeroes.
fn needed_now(log: &Log, segment: &Segment, end_bytes: u64) -> Ahead {
    Ahead { needed: end_bytes, step: allocation_step(log, segment), is_prewriting: false }
}

/// Doubles what there is, from the first step to the setting.
fn allocation_step(log: &Log, segment: &Segment) -> u64 {
    let step_max = u64::from(log.settings.borrow().preallocate_bytes).next_multiple_of(BLOCK);
    segment.allocated.get().next_multiple_of(BLOCK).max(ALLOCATION_FIRST_BYTES).min(step_max)
}

fn last_block(buffer: &AlignedBuf) -> &[u8] {
    let (_, block) = buffer.as_slice().split_last_chunk::<BLOCK_BYTES>().expect("a buffer has a block");
    block
}

pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The process or the machine has no descriptor left: a file was not opened, so nothing happened to it.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A file was not opened for want of something that may come back.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    is_no_space(error) || is_out_of_descriptors(error) || Errno::from_io_error(error) == Some(Errno::NOMEM)
}

fn failed(log: &Log, segment: &Segment, what: &str, error: &io::Error) -> Stop {
    Stop::Failed(format!("{what} {}: {error}", log.file_name(segment)))
}

impl Log {
    /// Bytes that wait for `segment`, at most `bytes_max`; 0 when its file is only to be made.
    fn pending_bytes_of(&self, segment: &Rc<Segment>, bytes_max: usize) -> usize {
        let pending = self.appender.pending.borrow();
        let mut bytes = 0;
        for batch in pending.iter().take_while(|batch| Rc::ptr_eq(&batch.segment, segment)) {
            bytes += batch.bytes.len();
            if bytes >= bytes_max {
                return bytes_max;
            }
        }
        bytes
    }
}
