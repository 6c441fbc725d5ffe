//! The Rust peer, krabka-log. Prints what it found and its median seconds as JSON; rounds follow
//! one that warms up.
//!
//! `krabka-peer decode LOG` decodes a log file with the borrowed batch reader, from memory, CRC
//! checked: records and bytes of values. `krabka-peer load DIRECTORY THREADS ROUNDS` opens every
//! partition of a data directory, each by one thread, as a broker's start does: segments. With no
//! rounds it opens them once, without warming up. `krabka-peer append DIRECTORY BATCH APPENDS ROUNDS`
//! appends a batch again and again as its broker does with what a producer sent: header, CRC and
//! records checked, the bytes written as they are. The end offset.

use krabka_compression::RecordDecompressionPolicy;
use bytes::Bytes;
use krabka_log::{Log, LogConfig, VerbatimBatch};
use krabka_protocol::records::{RecordBatchBorrowed, validate_one_v2_batch};
use std::{
    env, fs,
    hint::black_box,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

fn decode(data: &[u8]) -> (u64, u64) {
    let (mut records, mut value_bytes) = (0, 0);
    let mut rest = data;
    while !rest.is_empty() {
        let policy = RecordDecompressionPolicy::default();
        let batch = RecordBatchBorrowed::decode_borrow_with_policy(&mut rest, policy)
            .expect("a whole, sound batch");
        for record in batch.iter() {
            let record = record.expect("a sound record");
            records += 1;
            value_bytes += record.value.map_or(0, |value| value.len() as u64);
            black_box(&record);
        }
    }
    (records, value_bytes)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn decode_rounds(path: &str) {
    let data = fs::read(path).expect("a readable log");
    let mut told = decode(&data);
    let seconds = (0..3)
        .map(|_| {
            let start = Instant::now();
            told = decode(black_box(&data));
            start.elapsed().as_secs_f64()
        })
        .collect();
    println!(
        "{{\"records\": {}, \"value_bytes\": {}, \"seconds\": {}}}",
        told.0,
        told.1,
        median(seconds)
    );
}

/// Seconds until every partition is open; then they are closed again.
fn load(partitions: &[PathBuf], threads: usize) -> f64 {
    let (next, opened) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = partitions.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let log = Log::open(path, LogConfig::default()).expect("a sound partition");
                    opened.lock().unwrap().push(log);
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    for log in opened.into_inner().unwrap() {
        log.close();
    }
    seconds
}

fn log_files(partition: &Path) -> usize {
    fs::read_dir(partition)
        .expect("a readable partition")
        .filter(|entry| entry.as_ref().is_ok_and(|one| one.path().extension() == Some("log".as_ref())))
        .count()
}

fn load_rounds(root: &str, threads: usize, rounds: usize) {
    let partitions: Vec<PathBuf> = fs::read_dir(root)
        .expect("a readable data directory")
        .map(|entry| entry.expect("a readable data directory").path())
        .filter(|path| path.is_dir())
        .collect();
    let first = load(&partitions, threads);
    let seconds: Vec<f64> = (0..rounds).map(|_| load(&partitions, threads)).collect();
    println!(
        "{{\"segments\": {}, \"seconds\": {}}}",
        partitions.iter().map(|path| log_files(path)).sum::<usize>(),
        if rounds == 0 { first } else { median(seconds) }
    );
}

fn append(directory: &Path, batch: &[u8], appends: usize) -> (f64, i64) {
    fs::create_dir_all(directory).expect("a new directory");
    let mut log = Log::open(directory, LogConfig::default()).expect("an empty partition");
    let start = Instant::now();
    for _ in 0..appends {
        let bytes = Bytes::copy_from_slice(black_box(batch));
        let checked = validate_one_v2_batch(&bytes).expect("a sound batch");
        checked
            .validate_records(RecordDecompressionPolicy::default())
            .expect("sound records");
        let verbatim = VerbatimBatch::from_header(checked.header, bytes.clone());
        log.append_verbatim(&verbatim).expect("room on the disk");
    }
    let seconds = start.elapsed().as_secs_f64();
    let end = log.log_end_offset().0;
    log.close();
    fs::remove_dir_all(directory).expect("a directory of its own");
    (seconds, end)
}

fn append_rounds(directory: &str, batch: &str, appends: usize, rounds: usize) {
    let data = fs::read(batch).expect("a readable batch");
    let path = Path::new(directory).join("krabka-0");
    let (_, end) = append(&path, &data, appends);
    let seconds = (0..rounds).map(|_| append(&path, &data, appends).0).collect();
    println!("{{\"end_offset\": {end}, \"seconds\": {}}}", median(seconds));
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["decode", log] => decode_rounds(log),
        ["load", root, threads, rounds] => load_rounds(
            root,
            threads.parse().expect("a number of threads"),
            rounds.parse().expect("a number of rounds"),
        ),
        ["append", directory, batch, appends, rounds] => append_rounds(
            directory,
            batch,
            appends.parse().expect("a number of appends"),
            rounds.parse().expect("a number of rounds"),
        ),
        _ => panic!("krabka-peer decode LOG | load DIRECTORY THREADS ROUNDS | append ..."),
    }
}
