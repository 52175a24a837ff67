//! Writing the parts of a record one behind the other.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// Takes slices as slices. Left to itself the library adds them to a vector byte by byte, to the same effect.
struct Appended(Vec<u8>);

impl Flavor for Appended {
    type Output = Vec<u8>;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Adds a part. Writing plain structs into memory cannot fail; an empty record would be refused on reading all the same.
pub(crate) fn append<T: Serialize>(part: &T, bytes: Vec<u8>) -> Vec<u8> {
    postcard::serialize_with_flavor(part, Appended(bytes)).unwrap_or_default()
}
