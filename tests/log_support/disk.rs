//! A disk that can lose power: fed with the recording of what a log did to its files, it makes images of what a crash may
//! leave.
//!
//! What may happen to an operation that no sync covers: a write leaves any of its sectors old or new; changes of a file's
//! length happen in their order, up to any point (one journal); so do changes of names. After a mere kill, what had finished
//! stays, and only what was under way is in doubt. Small files written whole are old or new, never mixed, if they are synced
//! before they are renamed; else a power loss may leave the new name with nothing, zeroes or a part in it. The sync of a log
//! directory stands for that of its whole file system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringlog::rt::file::record::{Event, FileId, Op};

/// What a device writes wholly or not at all.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    /// Of the process: the kernel goes on.
    Kill,
    /// Of the machine.
    PowerLoss,
}

/// What is left: contents by path.
pub(crate) type Image = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Bytes),
    Truncate(u64),
    Preallocate(u64),
    /// The whole file, not synced.
    Replace(Bytes),
}

#[derive(Clone, Debug)]
struct Pending<T> {
    number: u32,
    change: T,
    finished: bool,
}

#[derive(Default)]
struct Inode {
    durable: Vec<u8>,
    pending: Vec<Pending<Change>>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

enum Running {
    Sync { inode: usize, covered: Vec<u32> },
    SyncDir { covered: Vec<u32> },
    SyncAll { covered: Vec<u32> },
    WriteWhole { path: PathBuf, bytes: Bytes, covered: Vec<u32> },
}

#[derive(Default)]
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    files: BTreeMap<FileId, usize>,
    /// As the running system sees them.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_changes: Vec<Pending<NameChange>>,
    running: BTreeMap<u32, Running>,
}

impl Disk {
    /// A disk that holds `image`, synced.
    pub(crate) fn of(image: &Image) -> Self {
        let mut disk = Self::default();
        for (path, bytes) in image {
            disk.names.insert(path.clone(), disk.inodes.len());
            disk.inodes.push(Inode { durable: bytes.clone(), pending: Vec::new() });
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    pub(crate) fn on(&mut self, event: &Event) {
        match event {
            Event::Started(number, op) => self.start(*number, op),
            Event::Finished(number) => self.finish(*number),
        }
    }

    fn start(&mut self, number: u32, op: &Op) {
        match op {
            Op::Open { file, path, created } => {
                if *created {
                    let inode = self.inodes.len();
                    self.inodes.push(Inode::default());
                    self.change_name(number, NameChange::Link(path.clone(), inode));
                }
                self.files.insert(*file, self.names[path]);
            }
            Op::Write { file, position, bytes } => self.change(number, *file, Change::Write(*position, bytes.clone())),
            Op::Truncate { file, len } => self.change(number, *file, Change::Truncate(*len)),
            Op::Preallocate { file, len } => self.change(number, *file, Change::Preallocate(*len)),
            Op::Sync { file } => {
                let inode = self.files[file];
                let covered = finished(&self.inodes[inode].pending);
                self.running.insert(number, Running::Sync { inode, covered });
            }
            Op::SyncDir { path } if !self.names.keys().any(|name| name.parent() == Some(path)) => {
                let mut covered = finished(&self.name_changes);
                covered.extend(self.inodes.iter().flat_map(|inode| finished(&inode.pending)));
                self.running.insert(number, Running::SyncAll { covered });
            }
            Op::SyncDir { .. } => {
                self.running.insert(number, Running::SyncDir { covered: finished(&self.name_changes) });
            }
            Op::WriteWhole { path, bytes, synced: false } => {
                let change = Pending { number, change: Change::Replace(bytes.clone()), finished: false };
                let inode = self.inodes.len();
                self.inodes.push(Inode { durable: Vec::new(), pending: vec![change] });
                self.change_name(number, NameChange::Link(path.clone(), inode));
            }
            Op::WriteWhole { path, bytes, synced: true } => {
                let covered = finished(&self.name_changes);
                self.running.insert(number, Running::WriteWhole { path: path.clone(), bytes: bytes.clone(), covered });
            }
            Op::Rename { from, to } => self.change_name(number, NameChange::Rename(from.clone(), to.clone())),
            Op::Remove { path } => self.change_name(number, NameChange::Remove(path.clone())),
            Op::CreateDir { .. } => {}
        }
    }

    fn finish(&mut self, number: u32) {
        match self.running.remove(&number) {
            Some(Running::Sync { inode, covered }) => self.inodes[inode].settle(&covered),
            Some(Running::SyncDir { covered }) => self.settle_names(&covered),
            Some(Running::SyncAll { covered }) => {
                self.inodes.iter_mut().for_each(|inode| inode.settle(&covered));
                self.settle_names(&covered);
            }
            Some(Running::WriteWhole { path, bytes, covered }) => {
                self.settle_names(&covered);
                let inode = self.inodes.len();
                self.inodes.push(Inode { durable: bytes.to_vec(), pending: Vec::new() });
                self.names.insert(path.clone(), inode);
                self.durable_names.insert(path, inode);
            }
            None => {
                let changes = self.inodes.iter_mut().flat_map(|inode| &mut inode.pending);
                changes.filter(|change| change.number == number).for_each(|change| change.finished = true);
                let changes = self.name_changes.iter_mut().filter(|change| change.number == number);
                changes.for_each(|change| change.finished = true);
            }
        }
    }

    fn change(&mut self, number: u32, file: FileId, change: Change) {
        let inode = self.files[&file];
        self.inodes[inode].pending.push(Pending { number, change, finished: false });
    }

    fn change_name(&mut self, number: u32, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.name_changes.push(Pending { number, change, finished: false });
    }

    fn settle_names(&mut self, covered: &[u32]) {
        for change in self.name_changes.iter().filter(|change| covered.contains(&change.number)) {
            apply_name(&mut self.durable_names, &change.change);
        }
        self.name_changes.retain(|change| !covered.contains(&change.number));
    }

    /// What a crash now may leave.
    pub(crate) fn crash(&self, crash: Crash, random: &mut fastrand::Rng) -> Image {
        let mut names = self.durable_names.clone();
        let kept = random.usize(0..=self.name_changes.len());
        for (place, change) in self.name_changes.iter().enumerate() {
            let holds = match crash {
                // Each is done or not by itself: a removal may be under way while a file that came after it is there.
                Crash::Kill => change.finished || random.bool(),
                Crash::PowerLoss => place < kept,
            };
            if holds {
                apply_name(&mut names, &change.change);
            }
        }
        let mut image = Image::new();
        for (path, inode) in names {
            image.insert(path, self.inodes[inode].after(crash, random));
        }
        for running in self.running.values() {
            if let Running::WriteWhole { path, bytes, .. } = running
                && random.bool()
            {
                image.insert(path.clone(), bytes.to_vec());
            }
        }
        image
    }
}

impl Inode {
    fn settle(&mut self, covered: &[u32]) {
        for change in self.pending.iter().filter(|change| covered.contains(&change.number)) {
            apply(&mut self.durable, &change.change, |_| true);
        }
        self.pending.retain(|change| !covered.contains(&change.number));
    }

    fn after(&self, crash: Crash, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut lengths_hold = true;
        for change in &self.pending {
            let certain = crash == Crash::Kill && change.finished;
            match &change.change {
                Change::Write(..) if certain => apply(&mut bytes, &change.change, |_| true),
                Change::Write(_, written) => {
                    let sectors = written.len() / SECTOR_BYTES;
                    // Wholly, not at all, up to or from a sector, all but or only one, or any of them.
                    let (at, kind) = (random.usize(0..sectors), random.u8(0..7));
                    apply(&mut bytes, &change.change, |sector| match kind {
                        0 => true,
                        1 => false,
                        2 => sector < at,
                        3 => sector >= at,
                        4 => sector != at,
                        5 => sector == at,
                        _ => random.bool(),
                    });
                }
                Change::Replace(_) if crash == Crash::Kill => apply(&mut bytes, &change.change, |_| true),
                Change::Replace(whole) => {
                    let kept = [whole.len(), random.usize(0..=whole.len())];
                    bytes = whole[..random.choice(kept).unwrap()].to_vec();
                    if random.u8(0..4) == 0 {
                        bytes.fill(0);
                    }
                }
                _ => {
                    lengths_hold = lengths_hold && (certain || random.u8(0..4) > 0);
                    if lengths_hold {
                        apply(&mut bytes, &change.change, |_| true);
                    }
                }
            }
        }
        bytes
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change, mut keeps_sector: impl FnMut(usize) -> bool) {
    match change {
        Change::Replace(whole) => *bytes = whole.to_vec(),
        Change::Truncate(len) => bytes.resize(*len as usize, 0),
        Change::Preallocate(len) => bytes.resize(bytes.len().max(*len as usize), 0),
        Change::Write(position, written) => {
            for (sector, new) in written.chunks(SECTOR_BYTES).enumerate() {
                let at = *position as usize + sector * SECTOR_BYTES;
                // What lies past a length that was lost is lost with it.
                let room = bytes.len().saturating_sub(at).min(new.len());
                if keeps_sector(sector) && room > 0 {
                    bytes[at..at + room].copy_from_slice(&new[..room]);
                }
            }
        }
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Link(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

fn finished<T>(pending: &[Pending<T>]) -> Vec<u32> {
    pending.iter().filter(|change| change.finished).map(|change| change.number).collect()
}

/// Puts the image into `dir`, in place of `was`.
pub(crate) fn lay(image: &Image, was: &Path, dir: &Path) {
    for (path, bytes) in image {
        let path = dir.join(path.strip_prefix(was).unwrap());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}
