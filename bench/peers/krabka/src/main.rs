//! Decodes a log file with the borrowed batch reader of krabka-log, from memory, CRC checked, and
//! prints records, bytes of values and the median seconds of three rounds, which follow one that
//! warms up, as JSON.

use krabka_compression::RecordDecompressionPolicy;
use krabka_protocol::records::RecordBatchBorrowed;
use std::{env, fs, hint::black_box, time::Instant};

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

fn main() {
    let path = env::args().nth(1).expect("krabka-peer LOG");
    let data = fs::read(path).expect("a readable log");
    let mut told = decode(&data);
    let mut seconds: Vec<f64> = (0..3)
        .map(|_| {
            let start = Instant::now();
            told = decode(black_box(&data));
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    println!(
        "{{\"records\": {}, \"value_bytes\": {}, \"seconds\": {}}}",
        told.0, told.1, seconds[1]
    );
}
