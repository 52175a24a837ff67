//! Makes the gRPC messages and services from `proto/`, without `protoc`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a build script may stop the build")]

use std::path::Path;

use prost::Message as _;

/// Every service, one file each.
const PROTOS: [&str; 2] = [
    "tidewheel/v1/worker.proto",
    "database/scheduler/v1/scheduler.proto",
];

fn main() {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"]).unwrap_or_else(|fault| {
        eprintln!("{fault:?}");
        std::process::exit(1);
    });
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("descriptors.bin"), descriptors.encode_to_vec())
        .expect("OUT_DIR can be written to");
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)
        .expect("the messages can be made");
}
