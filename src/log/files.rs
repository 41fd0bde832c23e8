//! Small whole files, names and directories, changed so that a power cut leaves the old state or the new one.
//!
//! Shell. Owns the order of write, sync, rename and directory sync. Does not own what is in the files. The async functions
//! run on the shard's helper thread and are noted in the recording that crash tests replay; the blocking ones are for the
//! control thread. Always: a reader sees the old file or the new one, whole, because the bytes are synced under another name
//! before they are renamed, and the rename is synced with the directory (Kafka lost leader epochs to a file whose name was
//! durable before its bytes were: KAFKA-16541). The one exception is a clean end, where a sync of the whole file system
//! takes the place of thousands of single ones: see [`sync_all_blocking`].

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::rt;
use crate::rt::file::record::{self, Op};

/// Suffix of a file that is being written; left behind by a crash and swept at the next start.
pub const UNFINISHED_SUFFIX: &str = ".tmp";

/// Whether new files are durable when their writing returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durable {
    /// Yes.
    Now,
    /// With the next [`sync_all_blocking`]. Until then a power cut may leave them empty, torn or missing.
    Later,
}

/// Names and contents of new files of one directory.
pub(crate) type NewFiles = Vec<(PathBuf, Vec<u8>)>;

/// Writes `bytes` to `path`: after a crash the file is the old one or the new one. Blocks: not for a shard.
pub fn write_blocking(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, Durable::Now)?;
    sync_dir_blocking(path.parent().unwrap_or(Path::new(".")))
}

/// Makes created, renamed and removed names of `dir` durable. Blocks: not for a shard.
pub fn sync_dir_blocking(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes everything on the file system of `dir` durable. Due for each log directory when its logs are closed and before the
/// clean-shutdown marker is written: a log's close leaves its last small files to it. Blocks: not for a shard.
pub fn sync_all_blocking(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Writes files of one directory, each as [`write_blocking`] does, with one sync of the directory.
pub(super) async fn write(files: NewFiles, durable: Durable) -> io::Result<()> {
    let note = |(path, bytes): &(PathBuf, Vec<u8>)| {
        let synced = durable == Durable::Now;
        record::note(|| Op::WriteWhole { path: path.clone(), bytes: bytes.clone().into(), synced })
    };
    let recordings: Vec<_> = files.iter().map(note).collect();
    rt::blocking(move || {
        for (path, bytes) in &files {
            replace(path, bytes, durable)?;
        }
        match files.first().and_then(|(path, _)| path.parent()) {
            Some(dir) if durable == Durable::Now => sync_dir_blocking(dir),
            _ => Ok(()),
        }
    })
    .await?;
    recordings.into_iter().for_each(record::Recording::finished);
    Ok(())
}

/// [`sync_dir_blocking`] for a shard.
pub(super) async fn sync_dir(dir: PathBuf) -> io::Result<()> {
    let recording = record::note(|| Op::SyncDir { path: dir.clone() });
    rt::blocking(move || sync_dir_blocking(&dir)).await?;
    recording.finished();
    Ok(())
}

/// Makes a directory durable that was made without a sync: one file of it, its own names, and its name in its parent.
pub(super) async fn sync_new_dir(dir: PathBuf, file: &'static str) -> io::Result<()> {
    let recording = record::note(|| Op::SyncDir { path: dir.clone() });
    rt::blocking(move || {
        File::open(dir.join(file))?.sync_all()?;
        sync_dir_blocking(&dir)?;
        sync_dir_blocking(dir.parent().unwrap_or(Path::new(".")))
    })
    .await?;
    recording.finished();
    Ok(())
}

/// Gives each file its new name; one that is not there (side files may not be) is no error. Not durable yet.
pub(super) async fn rename_all(names: Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
    for (from, to) in names {
        let recording = record::note(|| Op::Rename { from: from.clone(), to: to.clone() });
        rt::blocking(move || ignore_missing(std::fs::rename(from, to))).await?;
        recording.finished();
    }
    Ok(())
}

/// Removes files, as [`rename_all`] renames them.
pub(super) async fn remove_all(paths: Vec<PathBuf>) -> io::Result<()> {
    for path in paths {
        let recording = record::note(|| Op::Remove { path: path.clone() });
        rt::blocking(move || ignore_missing(std::fs::remove_file(path))).await?;
        recording.finished();
    }
    Ok(())
}

fn replace(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    if durable == Durable::Now {
        file.sync_data()?;
    }
    std::fs::rename(&unfinished, path)
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewritten_file_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leader-epoch-checkpoint");
        write_blocking(&path, b"old").unwrap();
        write_blocking(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
