//! The data directories: that they exist, are ours alone, and say whose they are.
//!
//! Shell: plain files on the control thread, before the shards start and after they end. Owns `meta.properties`, `.lock` and
//! `.kafka_cleanshutdown` of each of `log.dirs`. Does not own the partitions in them, but for
//! removing those of topics that are gone. Always: an open [`DataDirs`] holds an exclusive
//! lock on each directory; every refusal is one line that says what, where and what to do. Source: Kafka's file formats
//! (KIP-858 for `directory.id`); Java locks with fcntl, so both kinds of lock are taken.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, OFlags};

use super::image::DirectoryId;
use super::log::METADATA_DIR;
use crate::log::files::{sync_dir_blocking, write_blocking};
use crate::types::{BrokerId, TopicId};

const META_FILE: &str = "meta.properties";
const LOCK_FILE: &str = ".lock";
const CLEAN_FILE: &str = ".kafka_cleanshutdown";
/// Kafka's own metadata log: a directory that holds it belongs to a Kafka.
const KAFKA_METADATA_DIR: &str = "__cluster_metadata-0";
const TMPFS_MAGIC: i128 = 0x0102_1994;
/// File systems that may keep what they called flushed on another machine; statfs(2) has the numbers.
const NETWORK_FILE_SYSTEMS: &[(i128, &str)] =
    &[(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x6573_5546, "FUSE"), (0x0102_1997, "9p")];

/// Why a directory cannot be used; each a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// It cannot be made or is no directory.
    #[error("data directory {dir} cannot be used: {source}; give the broker a directory it may write to (log.dirs)")]
    Unusable {
        /// Which.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "data directory {dir} is in use by {holder}; stop that process or give this one another directory (log.dirs)"
    )]
    Locked {
        /// Which.
        dir: PathBuf,
        /// Who, as far as it can be known.
        holder: String,
    },
    /// The file system refuses direct I/O.
    #[error(
        "data directory {dir} is on a file system without direct I/O (O_DIRECT: {source}); use a local ext4, xfs or btrfs"
    )]
    NoDirectIo {
        /// Which.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It belongs to another node or cluster, or to Kafka.
    #[error("data directory {dir} {what}")]
    Foreign {
        /// Which.
        dir: PathBuf,
        /// Whose it is, and what to do.
        what: String,
    },
}

/// One data directory, locked.
#[derive(Debug)]
pub struct DataDir {
    /// Where.
    pub path: PathBuf,
    /// Its `directory.id`.
    pub id: DirectoryId,
    /// The last run ended cleanly: its logs need no scan.
    pub clean: bool,
    /// Its `meta.properties` is not written yet.
    is_new: bool,
    /// Held for its lock, and never opened twice: closing any descriptor of the file would end fcntl's lock.
    _lock: File,
}

/// All of `log.dirs`, locked and of one cluster.
#[derive(Debug)]
pub struct DataDirs {
    /// In the order of `log.dirs`; never empty.
    pub dirs: Vec<DataDir>,
    /// Their cluster.
    pub cluster_id: String,
    node_id: BrokerId,
    /// What people should know: a directory in memory, a new cluster.
    pub notes: Vec<String>,
}

impl DataDirs {
    /// Makes, checks and locks the directories. `cluster_id` is what the cluster must be called, when that was said.
    pub fn open(
        paths: &[PathBuf],
        node_id: BrokerId,
        cluster_id: Option<&str>,
        mut random: impl FnMut() -> u128,
    ) -> Result<Self, DirError> {
        let mut notes = Vec::new();
        let mut found = Vec::new();
        for path in paths {
            let lock = make_and_lock(path)?;
            notes.extend(check_direct_io(path)?);
            found.push((path, lock, read_meta(path, node_id)?));
        }
        let known = found.iter().filter_map(|(path, _, meta)| Some((*path, meta.as_ref()?.cluster_id.as_str())));
        let cluster_id = match agreed_cluster(known, cluster_id)? {
            Some(id) => id,
            None => {
                let id = TopicId::random(&mut random).to_string();
                notes.push(format!("made a new cluster {id}"));
                id
            }
        };
        let mut dirs: Vec<DataDir> = Vec::new();
        for (path, lock, meta) in found {
            let known_id = meta.and_then(|meta| meta.directory_id);
            let is_new = known_id.is_none();
            let id = known_id.unwrap_or_else(|| DirectoryId(TopicId::random(&mut random).to_string()));
            if let Some(twin) = dirs.iter().find(|dir| dir.id == id) {
                let what =
                    format!("has the directory.id of {}: one is a copy of the other, remove it", twin.path.display());
                return Err(DirError::Foreign { dir: path.clone(), what });
            }
            let clean = path.join(CLEAN_FILE).exists();
            dirs.push(DataDir { path: path.clone(), id, clean, is_new, _lock: lock });
        }
        Ok(Self { dirs, cluster_id, node_id, notes })
    }

    /// Says in the new ones whose they are. To be called when the metadata takes this set of directories: the mount point of a
    /// disk that is missing stays empty. And before it is told their ids, or a crash would leave it with ids of no directory.
    pub(super) fn write_new_metas(&self) -> Result<(), DirError> {
        for dir in self.dirs.iter().filter(|dir| dir.is_new) {
            write_meta(&dir.path, &self.cluster_id, self.node_id, &dir.id).map_err(unusable(&dir.path))?;
        }
        Ok(())
    }

    /// Takes the marks of a clean end away. To be called before the first byte is written: from here on a crash is a crash.
    pub fn mark_running(&self) -> Result<(), DirError> {
        for dir in &self.dirs {
            match fs::remove_file(dir.path.join(CLEAN_FILE)) {
                Ok(()) => sync_dir_blocking(&dir.path).map_err(unusable(&dir.path))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unusable(&dir.path)(error)),
            }
        }
        Ok(())
    }

    /// Marks the directory at `index` cleanly ended: every log in it was closed and its recovery points are on disk.
    pub fn mark_clean(&self, index: usize) -> Result<(), DirError> {
        // The epoch is Kafka's registration number of the broker; without a quorum there is none (-1).
        let dir = &self.dirs[index].path;
        write_blocking(&dir.join(CLEAN_FILE), b"{\"version\":0,\"brokerEpoch\":-1}").map_err(unusable(dir))
    }
}

impl DataDirs {
    /// Removes what a crash left of deleted topics: the partitions whose `partition.metadata` names one of them. Returns how many.
    pub(super) fn remove_partitions_of(&self, topics: &BTreeSet<TopicId>) -> Result<u32, DirError> {
        let mut removed = 0;
        for dir in self.dirs.iter().filter(|_| !topics.is_empty()) {
            for partition in partitions(&dir.path).map_err(unusable(&dir.path))? {
                let path = dir.path.join(partition);
                if topic_of(&path).is_some_and(|topic| topics.contains(&topic)) {
                    remove_partition(&path).map_err(unusable(&dir.path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// The directory that holds the metadata log: the first, until `log.dirs` is reordered.
    pub(super) fn metadata_home(&self) -> Result<&Path, DirError> {
        let mut homes = self.dirs.iter().filter(|dir| dir.path.join(METADATA_DIR).is_dir());
        let Some(home) = homes.next() else { return self.new_metadata_home() };
        match homes.next() {
            Some(second) => {
                let what =
                    format!("holds a metadata log, and so does {}; one is a copy, remove it", home.path.display());
                Err(DirError::Foreign { dir: second.path.clone(), what })
            }
            None => Ok(&home.path),
        }
    }

    /// Where a metadata log begins: nowhere while one directory is new and another is not. A disk that is missing would be taken
    /// for an empty one, and its cluster would go on without its topics.
    fn new_metadata_home(&self) -> Result<&Path, DirError> {
        let (new, known): (Vec<_>, Vec<_>) = self.dirs.iter().partition(|dir| dir.is_new);
        match (new.first(), known.first()) {
            (Some(new), Some(known)) => {
                let what = format!(
                    "is new, but {} is not, and no directory holds a metadata log; mount what is missing, or restore {METADATA_DIR} \
                     from a copy",
                    known.path.display()
                );
                Err(DirError::Foreign { dir: new.path.clone(), what })
            }
            _ => Ok(&self.dirs[0].path),
        }
    }

    /// Refuses directories that hold partitions when their metadata is new: the metadata was lost, and the data would be taken for
    /// nobody's.
    pub(super) fn expect_no_partitions(&self) -> Result<(), DirError> {
        for dir in &self.dirs {
            if let Some(partition) = partitions(&dir.path).map_err(unusable(&dir.path))?.first() {
                let what = format!(
                    "holds {partition}, but no directory holds a metadata log; restore {METADATA_DIR} from a copy"
                );
                return Err(DirError::Foreign { dir: dir.path.clone(), what });
            }
        }
        Ok(())
    }
}

/// The topic a partition's directory says it belongs to.
fn topic_of(partition: &Path) -> Option<TopicId> {
    let text = fs::read_to_string(partition.join("partition.metadata")).ok()?;
    text.lines().find_map(|line| TopicId::parse(line.strip_prefix("topic_id:")?.trim()))
}

/// Takes a partition's name away first, so that a crash leaves nothing that looks like one.
fn remove_partition(path: &Path) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push("-delete");
    fs::rename(path, &aside)?;
    sync_dir_blocking(path.parent().expect("a partition lies in a data directory"))?;
    fs::remove_dir_all(aside)
}

/// Looks whether a broker could use `path`, without changing anything that stays. Notes for people come back.
pub fn probe(path: &Path) -> Result<Vec<String>, DirError> {
    let mut notes = Vec::new();
    let mut dir = path;
    while !dir.exists() {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        notes = vec![format!("{} will be made", path.display())];
        dir = parent;
    }
    if !dir.is_dir() {
        return Err(unusable(path)(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| unusable(path)(error.into()))?;
    notes.extend(check_direct_io(dir)?);
    Ok(notes)
}

fn unusable(dir: &Path) -> impl FnOnce(io::Error) -> DirError + '_ {
    move |source| DirError::Unusable { dir: dir.to_owned(), source }
}

fn make_and_lock(dir: &Path) -> Result<File, DirError> {
    if !dir.exists() {
        fs::create_dir_all(dir).map_err(unusable(dir))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_dir_blocking(parent).map_err(unusable(dir))?;
        }
    }
    let path = dir.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(unusable(dir))?;
    for lock in [
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive),
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive),
    ] {
        match lock {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
                return Err(DirError::Locked { dir: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(error) => return Err(unusable(dir)(error.into())),
        }
    }
    match write_holder(&mut file) {
        // A refusal of another process will not name this one: no reason not to start.
        Err(error) if !is_full(&error) => Err(unusable(dir)(error)),
        _ => Ok(file),
    }
}

/// In place, so that a full disk has room for it.
fn write_holder(file: &mut File) -> io::Result<()> {
    let number = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(number.as_bytes())?;
    file.set_len(number.len() as u64)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Who holds the lock: the process that wrote its number there, if it still runs. Kafka writes none.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let number = file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse::<u32>().ok());
    match number.map(|number| (number, fs::read_to_string(format!("/proc/{number}/comm")))) {
        Some((number, Ok(name))) => format!("process {number} ({})", name.trim()),
        _ => "another process".to_owned(),
    }
}

/// Writes a block with O_DIRECT in `dir`. The note says what tmpfs, which has no device, or a network file system means for data.
fn check_direct_io(dir: &Path) -> Result<Option<String>, DirError> {
    let kind = rustix::fs::statfs(dir).map_err(|error| unusable(dir)(error.into()))?.f_type;
    // The field's sign and width differ between machines.
    let kind = i128::from(kind);
    if kind == TMPFS_MAGIC {
        return Ok(Some(format!(
            "{} lies in memory (tmpfs): its data is gone with the machine's power",
            dir.display()
        )));
    }
    let path = dir.join(format!(".ringlog-probe-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("O_DIRECT is one of the low bits");
    let opened = options.write(true).create(true).truncate(true).custom_flags(direct).open(&path);
    let written = opened.and_then(|file| write_block(&file));
    let removed = fs::remove_file(&path);
    judge_direct_io(dir, kind, written.and(removed))
}

fn judge_direct_io(dir: &Path, kind: i128, tried: io::Result<()>) -> Result<Option<String>, DirError> {
    match tried {
        Ok(()) => {
            let network = NETWORK_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind);
            let note = |name| {
                format!("{} is on {name}: what it calls flushed may not be on a disk; use a local one", dir.display())
            };
            Ok(network.map(|(_, name)| note(name)))
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            Err(DirError::NoDirectIo { dir: dir.to_owned(), source: error })
        }
        // Files open with direct I/O; what is there can be served, and deletion makes room.
        Err(error) if is_full(&error) => Ok(Some(format!("{} is full: {error}", dir.display()))),
        Err(error) => Err(unusable(dir)(error)),
    }
}

/// One block, aligned as direct I/O wants it: a slice of a buffer twice as long.
fn write_block(file: &File) -> io::Result<()> {
    const BLOCK: usize = crate::rt::file::BLOCK_BYTES;
    let buffer = vec![0_u8; 2 * BLOCK];
    let start = buffer.as_ptr().align_offset(BLOCK);
    std::os::unix::fs::FileExt::write_all_at(file, &buffer[start..start + BLOCK], 0)
}

/// What `meta.properties` says.
#[derive(Debug, PartialEq, Eq)]
struct Meta {
    cluster_id: String,
    directory_id: Option<DirectoryId>,
}

/// Reads `meta.properties`; `None` in a directory that holds nothing yet.
fn read_meta(dir: &Path, node_id: BrokerId) -> Result<Option<Meta>, DirError> {
    let foreign = |what: String| Err(DirError::Foreign { dir: dir.to_owned(), what });
    if dir.join(KAFKA_METADATA_DIR).exists() {
        return foreign(
            "is the data of an Apache Kafka, which is not taken over; give another directory (log.dirs)".to_owned(),
        );
    }
    let text = match fs::read(dir.join(META_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(partition) = partitions(dir).map_err(unusable(dir))?.first() {
                return foreign(format!(
                    "holds {partition} but no {META_FILE}; restore that file, or give an empty directory"
                ));
            }
            return Ok(None);
        }
        Err(error) => return Err(unusable(dir)(error)),
    };
    let mut entries = match java_properties::read(&text[..]) {
        Ok(entries) => entries,
        Err(error) => return foreign(format!("has an unreadable {META_FILE} ({error}); restore that file")),
    };
    match entries.get("version").map(String::as_str) {
        Some("0" | "1") => {}
        other => {
            return foreign(format!("has a {META_FILE} of version {}, this program reads 1", other.unwrap_or("none")));
        }
    }
    let node = entries.get("node.id").or(entries.get("broker.id")).map_or("none", String::as_str);
    if node.parse() != Ok(node_id.value()) {
        return foreign(format!(
            "belongs to node.id={node}, not to {node_id}; give each node a directory of its own (log.dirs)"
        ));
    }
    match entries.remove("cluster.id") {
        Some(cluster_id) => {
            Ok(Some(Meta { cluster_id, directory_id: entries.remove("directory.id").map(DirectoryId) }))
        }
        None => foreign(format!("has a {META_FILE} without cluster.id; restore that file")),
    }
}

/// The names of directories that look like a partition, in order.
fn partitions(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.rsplit_once('-').map(|(_, number)| number);
        if number.is_some_and(|number| number.parse::<u32>().is_ok()) && entry.file_type()?.is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The cluster all directories name, which is the one that was asked for, if any was.
fn agreed_cluster<'a>(
    mut known: impl Iterator<Item = (&'a PathBuf, &'a str)>,
    asked: Option<&str>,
) -> Result<Option<String>, DirError> {
    let Some((first, cluster)) = known.next() else { return Ok(asked.map(str::to_owned)) };
    if let Some((other, theirs)) = known.find(|(_, theirs)| *theirs != cluster) {
        let what =
            format!("belongs to cluster {theirs}, but {} to {cluster}; they cannot serve together", first.display());
        return Err(DirError::Foreign { dir: other.clone(), what });
    }
    match asked {
        Some(asked) if asked != cluster => {
            let what =
                format!("belongs to cluster {cluster}, not to {asked} (CLUSTER_ID); give another directory (log.dirs)");
            Err(DirError::Foreign { dir: first.clone(), what })
        }
        _ => Ok(Some(cluster.to_owned())),
    }
}

fn write_meta(dir: &Path, cluster_id: &str, node_id: BrokerId, directory_id: &DirectoryId) -> io::Result<()> {
    let text = format!("version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={}\n", directory_id.0);
    write_blocking(&dir.join(META_FILE), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: i32) -> BrokerId {
        BrokerId::new(id).unwrap()
    }

    fn open(paths: &[PathBuf], cluster: Option<&str>) -> Result<DataDirs, DirError> {
        let mut random = fastrand::Rng::with_seed(7);
        DataDirs::open(paths, node(1), cluster, move || random.u128(..))
    }

    fn two() -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let paths = vec![dir.path().join("a/deep"), dir.path().join("b")];
        (dir, paths)
    }

    fn refusal(paths: &[PathBuf], cluster: Option<&str>) -> String {
        open(paths, cluster).unwrap_err().to_string()
    }

    #[test]
    fn new_directories_get_one_cluster_and_ids_of_their_own_and_keep_them() {
        let (_root, paths) = two();
        let first = open(&paths, None).unwrap();
        assert!(!paths[0].join(META_FILE).exists(), "nothing is said before the metadata agrees");
        first.write_new_metas().unwrap();
        assert_eq!((first.cluster_id.len(), first.dirs[0].id.0.len()), (22, 22));
        assert_ne!(first.dirs[0].id, first.dirs[1].id);
        let ids: Vec<DirectoryId> = first.dirs.iter().map(|dir| dir.id.clone()).collect();
        let text = fs::read_to_string(paths[1].join(META_FILE)).unwrap();
        assert_eq!(text, format!("version=1\ncluster.id={}\nnode.id=1\ndirectory.id={}\n", first.cluster_id, ids[1].0));
        let cluster = first.cluster_id.clone();
        drop(first);
        let swapped = open(&[paths[1].clone(), paths[0].clone()], Some(&cluster)).unwrap();
        assert_eq!([&swapped.dirs[1].id, &swapped.dirs[0].id], [&ids[0], &ids[1]]);
    }

    #[test]
    fn kafkas_own_meta_properties_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#\n#Sun Nov 29 21:17:54 UTC 2026\nnode.id=1\ndirectory.id=7C0dMaltQ0aeetHRExUMXg\nversion=1\ncluster.id=GRw0_83KSIeJVy7RPrJOYA\n";
        fs::write(dir.path().join(META_FILE), text).unwrap();
        let meta = Meta {
            cluster_id: "GRw0_83KSIeJVy7RPrJOYA".into(),
            directory_id: Some(DirectoryId("7C0dMaltQ0aeetHRExUMXg".into())),
        };
        assert_eq!(read_meta(dir.path(), node(1)).unwrap(), Some(meta));
    }

    #[test]
    fn a_locked_directory_names_its_holder() {
        let (_root, paths) = two();
        let held = open(&paths, None).unwrap();
        let refused = refusal(&paths[..1], None);
        assert!(refused.contains(&format!("is in use by process {} (", std::process::id())), "{refused}");
        drop(held);
        assert!(open(&paths, None).is_ok());
    }

    #[test]
    fn directories_of_others_are_refused() {
        let (_root, paths) = two();
        open(&paths, Some("one")).unwrap().write_new_metas().unwrap();
        assert!(refusal(&paths, Some("two")).contains("belongs to cluster one, not to two"));
        let mut random = fastrand::Rng::with_seed(7);
        let other_node = DataDirs::open(&paths, node(2), None, move || random.u128(..)).unwrap_err().to_string();
        assert!(other_node.contains("belongs to node.id=1, not to 2"), "{other_node}");

        let meta = paths[1].join(META_FILE);
        fs::write(&meta, "version=1\ncluster.id=three\nnode.id=1\ndirectory.id=x\n").unwrap();
        assert!(refusal(&paths, None).contains("belongs to cluster three, but"));
        fs::copy(paths[0].join(META_FILE), &meta).unwrap();
        assert!(refusal(&paths, None).contains("has the directory.id of"));
        fs::write(&meta, "version=7\n").unwrap();
        assert!(refusal(&paths, None).contains("of version 7"));
        fs::write(&meta, "version=1\nnode.id=1\n").unwrap();
        assert!(refusal(&paths, None).contains("without cluster.id"));
        fs::remove_file(&meta).unwrap();
        fs::create_dir(paths[1].join("orders-0")).unwrap();
        assert!(refusal(&paths, None).contains("holds orders-0 but no meta.properties"));
        fs::create_dir(paths[1].join(KAFKA_METADATA_DIR)).unwrap();
        assert!(refusal(&paths, None).contains("is the data of an Apache Kafka"));
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refusal(std::slice::from_ref(&file), None).contains("cannot be used"));
        assert!(matches!(probe(&file), Err(DirError::Unusable { .. })));
        assert!(matches!(probe(&file.join("below")), Err(DirError::Unusable { .. })));
    }

    #[test]
    fn a_full_disk_is_a_note_and_one_without_direct_io_a_refusal() {
        let judge = |kind: io::ErrorKind| judge_direct_io(Path::new("/data"), 0, Err(kind.into()));
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(judge(kind).unwrap().unwrap().starts_with("/data is full"));
        }
        assert!(matches!(judge(io::ErrorKind::PermissionDenied), Err(DirError::Unusable { .. })));
        let invalid = io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
        assert!(matches!(judge_direct_io(Path::new("/data"), 0, Err(invalid)), Err(DirError::NoDirectIo { .. })));
        assert_eq!(judge_direct_io(Path::new("/data"), 0, Ok(())).unwrap(), None);
    }

    #[test]
    fn probing_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let notes = probe(&root.path().join("x/y")).unwrap();
        assert!(notes[0].ends_with("x/y will be made"), "{notes:?}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_clean_end_is_seen_once() {
        let (_root, paths) = two();
        let dirs = open(&paths, None).unwrap();
        assert!(dirs.dirs.iter().all(|dir| !dir.clean));
        dirs.mark_running().unwrap();
        dirs.mark_clean(0).unwrap();
        assert_eq!(fs::read_to_string(paths[0].join(CLEAN_FILE)).unwrap(), r#"{"version":0,"brokerEpoch":-1}"#);
        drop(dirs);
        let dirs = open(&paths, None).unwrap();
        assert_eq!([dirs.dirs[0].clean, dirs.dirs[1].clean], [true, false]);
        dirs.mark_running().unwrap();
        drop(dirs);
        assert!(!open(&paths, None).unwrap().dirs[0].clean);
    }
}
