//! Messages of clients, read with every length and count checked: pgwire's own decoders panic on short ones.

use bytes::{Buf, Bytes, BytesMut};

use super::error::{SqlError, code};

/// What `Describe` and `Close` are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Statement,
    Portal,
}

/// Parameters of a statement, bound to a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) portal: String,
    pub(super) statement: String,
    pub(super) parameter_formats: Vec<i16>,
    pub(super) parameters: Vec<Option<Bytes>>,
    pub(super) result_formats: Vec<i16>,
}

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frontend {
    Query(String),
    Parse {
        name: String,
        query: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe {
        target: Target,
        name: String,
    },
    Execute {
        portal: String,
        rows_max: usize,
    },
    Close {
        target: Target,
        name: String,
    },
    Flush,
    Sync,
    Terminate,
    /// A password, or a step of SASL: its meaning depends on what was asked.
    Password(Bytes),
    /// Data of a COPY that is no longer, or never was, under way.
    Copy,
}

impl Frontend {
    /// Whether an error in answering it is followed by a wait for `Sync`.
    pub(super) fn is_extended(&self) -> bool {
        !matches!(self, Self::Query(_))
    }

    /// Takes the first message out of `buffer`; `None` while it is not whole.
    ///
    /// Messages of more than `bytes_max` bytes, and those that are not as the protocol wants them, are errors
    /// after which the connection cannot go on.
    pub(super) fn take(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Self>, SqlError> {
        let Some((kind, header)) = buffer.split_first() else { return Ok(None) };
        let kind = *kind;
        let Some(length) = header.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        if length < 4 {
            return Err(SqlError::protocol("invalid message length"));
        }
        if length > bytes_max {
            return Err(SqlError { is_fatal: true, ..SqlError::limit("message length in bytes", bytes_max) });
        }
        if header.len() < length {
            return Ok(None);
        }
        buffer.advance(5);
        let body = Body(buffer.split_to(length - 4).freeze());
        message(kind, body).map(Some)
    }
}

fn message(kind: u8, mut body: Body) -> Result<Frontend, SqlError> {
    let message = match kind {
        b'Q' => Frontend::Query(body.text()?),
        b'P' => {
            let (name, query) = (body.text()?, body.text()?);
            Frontend::Parse { name, query, types: body.list(Body::u32)? }
        }
        b'B' => Frontend::Bind(Bind {
            portal: body.text()?,
            statement: body.text()?,
            parameter_formats: body.list(Body::i16)?,
            parameters: body.list(Body::value)?,
            result_formats: body.list(Body::i16)?,
        }),
        b'D' => Frontend::Describe { target: body.target()?, name: body.text()? },
        b'E' => {
            let portal = body.text()?;
            // Zero and less: all rows.
            let rows_max = usize::try_from(body.i32()?).unwrap_or(0);
            Frontend::Execute { portal, rows_max }
        }
        b'C' => Frontend::Close { target: body.target()?, name: body.text()? },
        b'H' => Frontend::Flush,
        b'S' => Frontend::Sync,
        b'X' => Frontend::Terminate,
        b'p' => return Ok(Frontend::Password(body.0)),
        b'd' | b'c' | b'f' => return Ok(Frontend::Copy),
        other => return Err(SqlError::protocol(format!("invalid frontend message type {other}"))),
    };
    if !body.0.is_empty() {
        return Err(SqlError::protocol("invalid message format: bytes are left over"));
    }
    Ok(message)
}

/// A message's bytes behind its length.
struct Body(Bytes);

impl Body {
    fn bytes(&mut self, count: usize) -> Result<Bytes, SqlError> {
        if self.0.len() < count {
            return Err(SqlError::protocol("invalid message format: it is too short"));
        }
        Ok(self.0.split_to(count))
    }

    fn u8(&mut self) -> Result<u8, SqlError> {
        Ok(self.bytes(1)?.get_u8())
    }

    fn i16(&mut self) -> Result<i16, SqlError> {
        Ok(self.bytes(2)?.get_i16())
    }

    fn i32(&mut self) -> Result<i32, SqlError> {
        Ok(self.bytes(4)?.get_i32())
    }

    fn u32(&mut self) -> Result<u32, SqlError> {
        Ok(self.bytes(4)?.get_u32())
    }

    /// Text that ends with a zero byte.
    fn text(&mut self) -> Result<String, SqlError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| SqlError::protocol("invalid message format: text has no end"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        String::from_utf8(text.to_vec()).map_err(|_| {
            SqlError::fatal(code::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")
        })
    }

    /// A parameter: NULL, or so many bytes.
    fn value(&mut self) -> Result<Option<Bytes>, SqlError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| SqlError::protocol("invalid message format: a negative length"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// A count and so many items. Nothing is reserved for the count: a message may lie about it.
    fn list<T>(&mut self, item: fn(&mut Self) -> Result<T, SqlError>) -> Result<Vec<T>, SqlError> {
        let count = self.bytes(2)?.get_u16();
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn target(&mut self) -> Result<Target, SqlError> {
        match self.u8()? {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            other => Err(SqlError::protocol(format!("invalid target {other} of a message"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8]) -> Result<Option<Frontend>, SqlError> {
        Frontend::take(&mut BytesMut::from(bytes), 1_000)
    }

    #[test]
    fn a_message_is_taken_once_it_is_whole() {
        assert_eq!(take(b"Q\0\0\0\x0bSELECT"), Ok(None));
        assert_eq!(take(b"Q\0\0\0\x0bSELECT\0"), Ok(Some(Frontend::Query("SELECT".to_owned()))));
        assert_eq!(
            take(b"E\0\0\0\x0aa\0\0\0\0\x05"),
            Ok(Some(Frontend::Execute { portal: "a".to_owned(), rows_max: 5 }))
        );
    }

    #[test]
    fn a_message_that_lies_about_its_parts_is_an_error() {
        for bytes in [
            b"Q\0\0\0\x03".as_slice(),
            b"Q\xff\xff\xff\xff",
            b"Q\0\0\x10\0",
            b"Q\0\0\0\x05a",
            b"P\0\0\0\x08\0\0\xff\xff",
            b"B\0\0\0\x0e\0\0\0\0\0\x01\0\0\0\x7f",
            b"D\0\0\0\x06Z\0",
            b"S\0\0\0\x05x",
            b"\x01\0\0\0\x04",
        ] {
            let error = take(bytes).expect_err("not a message");
            assert!(error.is_fatal, "{error}");
        }
    }
}
