//! Ascending lists in few bits: integers as their distance from the first of their block, byte strings without the
//! prefix that their block has in common. Every element is read in place, without unpacking the others.

use crate::error::{Error, Result};
use crate::table::keys::{ByteKeys, KeyList};

/// Elements of a block. Smaller ones need fewer bits an element and more for the blocks themselves.
const BLOCK: usize = 256;

/// Ascending integers, equal ones allowed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PackedInts {
    len: usize,
    blocks: Vec<IntBlock>,
    /// The distances, each block's from a bit of its own on; one word more than they fill.
    words: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct IntBlock {
    base: i64,
    /// Where the block's distances begin, in bits.
    at: u32,
    /// Bits of one distance, at most 64.
    width: u32,
}

impl PackedInts {
    /// Of an ascending list of at most 2^25 elements, so that places in bits fit 32 bits.
    pub(crate) fn new(values: &[i64]) -> Self {
        let mut packed = Self { len: values.len(), blocks: Vec::new(), words: Vec::new() };
        packed.blocks.reserve_exact(values.len().div_ceil(BLOCK));
        let mut bits = 0_usize;
        for block in values.chunks(BLOCK) {
            let (base, last) = (block[0], block[block.len() - 1]);
            let width = 64 - (last.wrapping_sub(base) as u64).leading_zeros();
            packed.blocks.push(IntBlock { base, at: bits as u32, width });
            packed.words.resize((bits + block.len() * width as usize).div_ceil(64) + 1, 0);
            for value in block {
                let distance = value.wrapping_sub(base) as u64;
                let (word, shift) = (bits / 64, bits % 64);
                packed.words[word] |= distance << shift;
                if shift + width as usize > 64 {
                    packed.words[word + 1] |= distance >> (64 - shift);
                }
                bits += width as usize;
            }
        }
        packed.words.shrink_to_fit();
        packed
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn at(&self, index: usize) -> i64 {
        let block = self.blocks[index / BLOCK];
        block.base.wrapping_add(self.distance(block, index % BLOCK) as i64)
    }

    fn distance(&self, block: IntBlock, index: usize) -> u64 {
        if block.width == 0 {
            return 0;
        }
        let bit = block.at as usize + index * block.width as usize;
        let (word, shift) = (bit / 64, (bit % 64) as u32);
        // Two shifts, because one by 64 bits is not defined.
        let high = (self.words[word + 1] << 1) << (63 - shift);
        (self.words[word] >> shift | high) & (u64::MAX >> (64 - block.width))
    }

    /// Appends all elements to `out`.
    pub(crate) fn unpack(&self, out: &mut Vec<i64>) {
        out.reserve(self.len);
        for (number, block) in self.blocks.iter().enumerate() {
            let len = (self.len - number * BLOCK).min(BLOCK);
            out.extend((0..len).map(|index| block.base.wrapping_add(self.distance(*block, index) as i64)));
        }
    }

    /// Calls `found(needle's index, position)` for each of the ascending `needles[from..to]` that is in the list.
    pub(crate) fn look_up(&self, needles: &[i64], from: usize, to: usize, found: &mut impl FnMut(usize, usize)) {
        let mut number = 0;
        for (index, needle) in needles.iter().enumerate().take(to).skip(from) {
            number += leap(self.blocks.len() - number, |ahead| self.blocks[number + ahead].base <= *needle);
            let Some(block) = self.blocks.get(number).filter(|block| block.base <= *needle) else { continue };
            let distance = needle.wrapping_sub(block.base) as u64;
            let len = (self.len - number * BLOCK).min(BLOCK);
            if let Some(at) = self.find(*block, len, distance) {
                found(index, number * BLOCK + at);
            }
        }
    }

    /// Where `distance` is among the `len` distances of a block. Keys are often spread evenly: the search begins where
    /// it would be then, and widens from there.
    fn find(&self, block: IntBlock, len: usize, distance: u64) -> Option<usize> {
        let last = self.distance(block, len - 1);
        if distance >= last {
            return (distance == last).then_some(len - 1);
        }
        let guess = (distance as f64 / last as f64 * (len - 1) as f64) as usize;
        let at_guess = self.distance(block, guess);
        if at_guess == distance {
            return Some(guess);
        }
        // What is looked for lies at `low` or behind, and before `high`.
        let (mut low, mut high, mut step) = (0, len, 8);
        if at_guess < distance {
            low = guess;
            while low + step < len {
                if self.distance(block, low + step) > distance {
                    high = low + step;
                    break;
                }
                low += step;
                step *= 2;
            }
        } else {
            high = guess;
            while high > step {
                if self.distance(block, high - step) <= distance {
                    low = high - step;
                    break;
                }
                high -= step;
                step *= 2;
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.distance(block, middle) <= distance { low = middle } else { high = middle }
        }
        (self.distance(block, low) == distance).then_some(low)
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<IntBlock>() + self.words.capacity() * 8
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.len as u32).to_le_bytes());
        out.extend((self.words.len() as u32).to_le_bytes());
        for block in &self.blocks {
            out.extend(block.base.to_le_bytes());
            out.extend(block.at.to_le_bytes());
            out.extend(block.width.to_le_bytes());
        }
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
    }

    /// What [`PackedInts::write`] wrote. Fails unless every element can be read.
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let len = take_u32(bytes)? as usize;
        let words = take_u32(bytes)? as usize;
        let count = len.div_ceil(BLOCK);
        if bytes.len() < count.checked_mul(16)?.checked_add(words.checked_mul(8)?)? {
            return None;
        }
        let mut blocks = Vec::with_capacity(count);
        for number in 0..count {
            let base = take_u64(bytes)? as i64;
            let (at, width) = (take_u32(bytes)?, take_u32(bytes)?);
            let end = at as usize + (len - number * BLOCK).min(BLOCK) * width as usize;
            if width > 64 || end.div_ceil(64) + 1 > words {
                return None;
            }
            blocks.push(IntBlock { base, at, width });
        }
        let words = (0..words).map(|_| take_u64(bytes)).collect::<Option<_>>()?;
        Some(Self { len, blocks, words })
    }
}

/// How many steps lead from an element to the last one for which `holds` does, which is true for some and false for
/// those behind them; 0 if it holds for none. `len` elements are left, the first included.
fn leap(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (0, 1);
    while low + step < len && holds(low + step) {
        low += step;
        step *= 2;
    }
    while step > 1 {
        step /= 2;
        if low + step < len && holds(low + step) {
            low += step;
        }
    }
    low
}

/// Ascending byte strings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PackedBytes {
    blocks: Vec<ByteBlock>,
    /// Where in `data` each element's own bytes end.
    ends: PackedInts,
    /// For each block its common prefix, then each element's other bytes.
    data: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct ByteBlock {
    prefix_at: u32,
    prefix_len: u32,
}

impl PackedBytes {
    /// Of `keys[from..to]`, which ascend, are at most 2^25 and less than 4 GiB.
    pub(crate) fn new(keys: &ByteKeys, from: usize, to: usize) -> Result<Self> {
        let too_large = || Error::invalid("the keys of one file exceed 4 GiB");
        let mut packed = Self::default();
        let mut ends = Vec::with_capacity(to - from);
        let mut start = from;
        while start < to {
            let end = to.min(start + BLOCK);
            let first = keys.at(start);
            // The list ascends: what its first and last element share, all share.
            let common = first.iter().zip(keys.at(end - 1)).take_while(|(a, b)| a == b).count();
            let prefix_at = u32::try_from(packed.data.len()).map_err(|_| too_large())?;
            packed.blocks.push(ByteBlock { prefix_at, prefix_len: common as u32 });
            packed.data.extend_from_slice(&first[..common]);
            for index in start..end {
                packed.data.extend_from_slice(&keys.at(index)[common..]);
                ends.push(packed.data.len() as i64);
            }
            start = end;
        }
        u32::try_from(packed.data.len()).map_err(|_| too_large())?;
        packed.ends = PackedInts::new(&ends);
        packed.data.shrink_to_fit();
        packed.blocks.shrink_to_fit();
        Ok(packed)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn prefix(&self, number: usize) -> &[u8] {
        let block = self.blocks[number];
        &self.data[block.prefix_at as usize..(block.prefix_at + block.prefix_len) as usize]
    }

    fn tail(&self, index: usize) -> &[u8] {
        let start = if index.is_multiple_of(BLOCK) {
            let block = self.blocks[index / BLOCK];
            (block.prefix_at + block.prefix_len) as usize
        } else {
            self.ends.at(index - 1) as usize
        };
        &self.data[start..self.ends.at(index) as usize]
    }

    /// Appends the element at `index` to `out`.
    pub(crate) fn append(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix(index / BLOCK));
        out.extend_from_slice(self.tail(index));
    }

    /// As [`PackedInts::look_up`].
    pub(crate) fn look_up(&self, needles: &ByteKeys, from: usize, to: usize, found: &mut impl FnMut(usize, usize)) {
        let mut number = 0;
        for index in from..to {
            let needle = needles.at(index);
            let first_is_not_after = |number: usize| {
                let prefix = self.prefix(number);
                match needle.get(..prefix.len()) {
                    Some(head) if head == prefix => self.tail(number * BLOCK) <= &needle[prefix.len()..],
                    _ => prefix < needle,
                }
            };
            number += leap(self.blocks.len() - number, |ahead| first_is_not_after(number + ahead));
            if number >= self.blocks.len() {
                return;
            }
            let Some(rest) = needle.strip_prefix(self.prefix(number)) else { continue };
            let (mut low, mut len) = (number * BLOCK, (self.len() - number * BLOCK).min(BLOCK));
            while len > 1 {
                let half = len / 2;
                if self.tail(low + half) <= rest {
                    low += half;
                }
                len -= half;
            }
            if self.tail(low) == rest {
                found(index, low);
            }
        }
    }

    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<ByteBlock>() + self.ends.bytes() + self.data.capacity()
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.ends.write(out);
        for block in &self.blocks {
            out.extend(block.prefix_at.to_le_bytes());
            out.extend(block.prefix_len.to_le_bytes());
        }
        out.extend((self.data.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.data);
    }

    /// What [`PackedBytes::write`] wrote. Fails unless every element can be read.
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let ends = PackedInts::read(bytes)?;
        let mut blocks = Vec::new();
        for _ in 0..ends.len().div_ceil(BLOCK) {
            blocks.push(ByteBlock { prefix_at: take_u32(bytes)?, prefix_len: take_u32(bytes)? });
        }
        let len = take_u32(bytes)? as usize;
        let (data, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        let mut before = 0;
        for index in 0..ends.len() {
            if index.is_multiple_of(BLOCK) {
                let block = blocks[index / BLOCK];
                let end = u64::from(block.prefix_at) + u64::from(block.prefix_len);
                if u64::from(block.prefix_at) < before {
                    return None;
                }
                before = end;
            }
            let end = u64::try_from(ends.at(index)).ok()?;
            if end < before || end > len as u64 {
                return None;
            }
            before = end;
        }
        Some(Self { blocks, ends, data: data.to_vec() })
    }
}

pub(crate) fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*head))
}

pub(crate) fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn lists() -> Vec<Vec<i64>> {
        let mut random = StdRng::seed_from_u64(3);
        let mut lists = vec![
            vec![],
            vec![-7],
            vec![i64::MIN, -1, 0, 1, i64::MAX - 1],
            (0..1000).collect(),
            (0..1000_i64).map(|n| n * 1_000_003).collect(),
        ];
        for len in [255, 256, 257, 5000] {
            for bits in [4, 20, 62] {
                let mut list: Vec<i64> =
                    (0..len).map(|_| random.random_range(-(1 << bits)..(1_i64 << bits) - 1)).collect();
                list.sort_unstable();
                list.dedup();
                lists.push(list);
            }
        }
        lists
    }

    #[test]
    fn integers_come_back_and_are_found() {
        for list in lists() {
            let packed = PackedInts::new(&list);
            assert_eq!((0..list.len()).map(|index| packed.at(index)).collect::<Vec<_>>(), list);
            let (mut bytes, mut all) = (Vec::new(), Vec::new());
            packed.unpack(&mut all);
            assert_eq!(all, list);
            packed.write(&mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(PackedInts::read(&mut rest), Some(packed.clone()));
            assert!(rest.is_empty());
            let mut needles: Vec<i64> =
                list.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1)]).collect();
            needles.sort_unstable();
            needles.dedup();
            let mut found = Vec::new();
            packed.look_up(&needles, 0, needles.len(), &mut |needle, position| found.push((needle, position)));
            let expected: Vec<(usize, usize)> = needles
                .iter()
                .enumerate()
                .filter_map(|(index, needle)| Some((index, list.binary_search(needle).ok()?)))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn strings_come_back_and_are_found() {
        for list in lists() {
            let mut keys: Vec<Vec<u8>> = list.iter().map(|n| format!("order/{n:020}").into_bytes()).collect();
            keys.extend(list.iter().map(|n| n.to_be_bytes()[..(n.unsigned_abs() % 9) as usize].to_vec()));
            keys.sort_unstable();
            keys.dedup();
            let mut byte_keys = ByteKeys::default();
            keys.iter().for_each(|key| byte_keys.push(key).unwrap());
            let packed = PackedBytes::new(&byte_keys, 0, keys.len()).unwrap();
            let (mut bytes, mut needles) = (Vec::new(), Vec::new());
            packed.write(&mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(PackedBytes::read(&mut rest), Some(packed.clone()));
            assert!(rest.is_empty());
            for (index, key) in keys.iter().enumerate() {
                let mut out = Vec::new();
                packed.append(index, &mut out);
                assert_eq!(&out, key);
                needles.extend([key.clone(), [key.as_slice(), &[0]].concat(), key[..key.len() / 2].to_vec()]);
            }
            needles.sort_unstable();
            needles.dedup();
            let mut byte_needles = ByteKeys::default();
            needles.iter().for_each(|key| byte_needles.push(key).unwrap());
            let mut found = Vec::new();
            packed.look_up(&byte_needles, 0, needles.len(), &mut |needle, at| found.push((needle, at)));
            let expected: Vec<(usize, usize)> = needles
                .iter()
                .enumerate()
                .filter_map(|(index, needle)| Some((index, keys.binary_search(needle).ok()?)))
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn dense_integers_take_about_a_byte() {
        let packed = PackedInts::new(&(0..1_000_000).collect::<Vec<_>>());
        assert!(packed.bytes() < 1_100_000, "{} bytes", packed.bytes());
    }

    #[test]
    fn no_bytes_at_all_make_a_reader_fail_badly() {
        let mut bytes = Vec::new();
        let mut keys = ByteKeys::default();
        (0..600).for_each(|n| keys.push(format!("{n:05}").as_bytes()).unwrap());
        PackedBytes::new(&keys, 0, 600).unwrap().write(&mut bytes);
        let mut random = StdRng::seed_from_u64(5);
        for _ in 0..2000 {
            let mut bytes = bytes.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            if let Some(packed) = PackedBytes::read(&mut bytes.as_slice()) {
                let mut out = Vec::new();
                (0..packed.len()).for_each(|index| packed.append(index, &mut out));
            }
        }
    }
}
