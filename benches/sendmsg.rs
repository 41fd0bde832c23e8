//! Is one `sendmsg` of many slices cheaper than a `send` for each? A megabyte over loopback, taken by another thread.

use std::io::{IoSlice, Read};
use std::net::{TcpListener, TcpStream};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::net::{SendAncillaryBuffer, SendFlags};

const TOTAL: usize = 1 << 20;

/// A connected socket whose other end is read as fast as it goes.
fn drained_socket() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let socket = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (mut other, _) = listener.accept().expect("it was connected");
    std::thread::spawn(move || {
        let mut buffer = vec![0; TOTAL];
        while other.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    socket
}

fn send_slices(socket: &TcpStream, slices: &[Vec<u8>], per_call: usize) {
    for group in slices.chunks(per_call) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let sent = rustix::net::sendmsg(socket, rest, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
            IoSlice::advance_slices(&mut rest, sent.expect("the other end reads"));
        }
    }
}

fn sends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("send 1 MiB");
    group.throughput(Throughput::Bytes(TOTAL as u64));
    for slice_bytes in [1 << 10, 16 << 10] {
        let slices = vec![vec![1; slice_bytes]; TOTAL / slice_bytes];
        for per_call in [1, 64] {
            let socket = drained_socket();
            let name = format!("slices of {} KiB, {per_call} a call", slice_bytes >> 10);
            group.bench_function(name, |bencher| bencher.iter(|| send_slices(&socket, &slices, per_call)));
        }
    }
    group.finish();
}

criterion_group!(benches, sends);
criterion_main!(benches);
