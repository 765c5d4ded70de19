//! Postgres's `numeric` as it comes over the wire.

/// Its sign field.
const NEGATIVE: u16 = 0x4000;
const POSITIVE: u16 = 0;
/// Digits of the decimal system in one of its own.
const DIGITS: i32 = 4;

/// The number in units of 10^-scale; `None` for NaN, infinity, or more digits than there is room for.
pub(super) fn decimal(bytes: &[u8], scale: i8) -> Option<i128> {
    let word = |at: usize| bytes.get(at * 2..at * 2 + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let (count, weight, sign) = (word(0)?, word(1)?.cast_signed(), word(2)?);
    if sign != NEGATIVE && sign != POSITIVE {
        return None;
    }
    let mut sum: i128 = 0;
    for place in 0..count {
        let digit = i128::from(word(4 + usize::from(place))?);
        let exponent = DIGITS * (i32::from(weight) - i32::from(place)) + i32::from(scale);
        let factor = 10_i128.checked_pow(exponent.unsigned_abs());
        let part = match (exponent >= 0, factor) {
            (true, Some(factor)) => digit.checked_mul(factor)?,
            (true, None) if digit == 0 => 0,
            (false, Some(factor)) if digit % factor == 0 => digit / factor,
            (false, None) if digit == 0 => 0,
            _ => return None,
        };
        sum = sum.checked_add(part)?;
    }
    Some(if sign == NEGATIVE { -sum } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight.cast_unsigned(), sign, 0];
        head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn digits_of_the_wire_become_units_of_the_scale() {
        assert_eq!(decimal(&wire(0, 0, &[12, 5000]), 2), Some(1_250)); // 12.5
        assert_eq!(decimal(&wire(1, NEGATIVE, &[1, 2345, 6700]), 2), Some(-1_234_567)); // -12345.67
        assert_eq!(decimal(&wire(-1, 0, &[1]), 4), Some(1)); // 0.0001
        assert_eq!(decimal(&wire(0, 0, &[]), 2), Some(0));
        assert_eq!(decimal(&wire(2, 0, &[3]), 0), Some(300_000_000));
    }

    #[test]
    fn what_has_no_exact_value_is_none() {
        assert_eq!(decimal(&wire(0, 0xC000, &[]), 2), None); // NaN
        assert_eq!(decimal(&wire(-1, 0, &[1]), 2), None); // 0.0001 at two digits
        assert_eq!(decimal(&wire(20, 0, &[1]), 0), None);
        assert_eq!(decimal(&[0, 1, 0], 2), None);
    }
}
