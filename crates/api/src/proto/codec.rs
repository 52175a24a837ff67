//! How messages are put on the wire: as usual, but with little room kept for each call, and in one piece. A worker's
//! stream lives for days and says little; with the usual buffers ten thousand idle ones would keep 160 MB for what they
//! might say. A busy one says thousands of jobs in a message, whose many small fields are written to and read from
//! plain memory faster than where the transport keeps its bytes.

use std::marker::PhantomData;

use bytes::{Buf, BufMut};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Room kept by each direction of a call; larger messages grow it.
const BUFFER_BYTES: usize = 512;
/// Messages that wait to be sent are sent together up to about this much.
const TOGETHER_BYTES: usize = 32 * 1_024;

/// The usual encoding with small buffers.
#[derive(Debug, Clone)]
pub struct LeanCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LeanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = LeanEncoder<T>;
    type Decoder = LeanDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        LeanEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        LeanDecoder(PhantomData)
    }
}

/// Writes messages.
#[derive(Debug, Clone)]
pub struct LeanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for LeanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let bytes = item.encode_to_vec();
        buffer.reserve(bytes.len());
        buffer.put_slice(&bytes);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

/// Reads messages.
#[derive(Debug, Clone)]
pub struct LeanDecoder<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for LeanDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        U::decode(bytes).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES)
}
