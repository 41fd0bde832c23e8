//! The binary: hands the arguments to [`ringlog::cli`].
fn main() {
    let mut sources = ringlog::config::Sources::default();
    let mut options = ringlog::control::Options::default();
    let mut args = std::env::args().skip(2);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--override" => { let v = args.next().unwrap(); let (k, w) = v.split_once('=').unwrap(); sources.overrides.push((k.into(), w.into())); }
            "--ready-file" => options.ready_file = Some(args.next().unwrap().into()),
            _ => panic!("{a}"),
        }
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let (settings, notes) = ringlog::config::load(&sources).unwrap_or_else(|p| { eprintln!("{p:?}"); std::process::exit(3) });
    if let Err(e) = ringlog::control::run(settings, &notes, &options) { eprintln!("error: {e}"); std::process::exit(1) }
}
