//! How messages are put on the wire: as usual, but with little room kept for each call. A worker's stream lives for days
//! and says little; with the usual buffers ten thousand idle ones would keep 160 MB for what they might say.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

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
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES)
}
