//! The client's foundations from outside: what a person is told when the address, the server or the settings are wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringlog::client::{Admin, AdminSettings, CallError, ClientError, Settings as _};

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn admin(server: impl ToString) -> ringlog::client::BlockingAdmin {
    let settings = AdminSettings::builder().set("bootstrap.servers", server).set("reconnect.backoff.max.ms", 50);
    Admin::new(settings.build().unwrap()).unwrap().blocking()
}

/// A port nobody listens on.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A server for one connection, which it answers with those bytes as soon as it was sent something.
fn server(answer: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        _ = stream.read(&mut [0; 512]).unwrap();
        stream.write_all(answer).unwrap();
        // Until the client closes.
        _ = stream.read(&mut [0; 512]);
    });
    (address, serving)
}

#[test]
fn a_wrong_address_is_told_at_once() {
    let address = free();
    let begun = Instant::now();
    let error = admin(address).reach().unwrap_err();
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(
        error.to_string(),
        format!(
            "could not connect to {address} (connection refused): is a broker running there? Look at bootstrap.servers"
        )
    );
    let error = admin("no-such-host.invalid:9092").reach().unwrap_err().to_string();
    assert!(error.contains("could not connect to no-such-host.invalid:9092 (the name does not resolve"), "{error}");
}

#[test]
fn a_call_keeps_trying_for_as_long_as_it_may() {
    let error = admin(free()).within(Duration::from_millis(300)).list_topics(false).unwrap_err();
    let ClientError::TimedOut { what, after, last } = &error else { panic!("{error}") };
    assert_eq!((&**what, *after), ("listing topics", Duration::from_millis(300)));
    assert!(matches!(last.as_deref(), Some(ClientError::Call(CallError::Connect { .. }))), "{error}");
}

#[test]
fn servers_of_other_protocols_are_named() {
    for (answer, name) in [
        (&b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..], "it speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it speaks SSH"),
        (b"\x15\x03\x03\x00\x02\x02\x32", "it speaks TLS"),
        (b"\xff\xff\xff\xfe", "-2 bytes"),
        (b"\x30\0\0\0", "more than receive.message.max.bytes"),
        (b"\0\0\0\x0a\0\0\0\x09abcdef", "answers another request"),
        (b"\0\0\0\x0a\0\0\0\0\0\0\x7f\xff\xff\xff", "the message ends inside a field"),
    ] {
        let (address, serving) = server(answer);
        let error = admin(address).list_topics(false).unwrap_err();
        assert!(!error.retriable(), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        serving.join().unwrap();
    }
}

#[test]
fn a_closed_door_is_not_taken_for_a_broker() {
    let (address, serving) = server(b"");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let hangs_up = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = admin(silent).reach().unwrap_err().to_string();
    assert!(error.contains("instead of saying which versions it speaks"), "{error}");
    hangs_up.join().unwrap();

    let settings = AdminSettings::builder().set("bootstrap.servers", address).set("request.timeout.ms", 50);
    let error = Admin::new(settings.build().unwrap()).unwrap().blocking().reach().unwrap_err().to_string();
    assert!(error.contains("(it let us in and then said nothing for 50ms): is it a Kafka broker"), "{error}");
    serving.join().unwrap();
}

#[test]
fn settings_say_where_they_are_wrong() {
    let text = b"bootstrap.servers=localhost:9092,http://x:1\nretry.backof.ms=5\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n";
    let error = AdminSettings::from_properties(text, "admin.properties").unwrap_err().to_string();
    assert_eq!(
        error.lines().collect::<Vec<_>>(),
        [
            "admin.properties:2: unknown setting retry.backof.ms (did you mean retry.backoff.ms?)",
            "admin.properties:3: security.protocol=SASL_SSL: this client speaks PLAINTEXT only so far (connect to a plain-text \
             listener of the broker, or through a tunnel (stunnel, ssh -L))",
            "admin.properties:1: bootstrap.servers: \"http://x:1\" is no host:port: write it without :// (as in \
             bootstrap.servers=broker1:9092,broker2:9092)",
        ]
    );
}
