//! Chance, passed in as the time of day is.

use std::fmt::Debug;
use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Draws numbers.
pub trait Random: Send + Sync + Debug {
    /// A number, each as likely as any other.
    fn draw(&self) -> u64;

    /// A number from 0 up to 1, without 1.
    fn fraction(&self) -> f64 {
        // As many bits as a fraction has.
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The process's own source, seeded by the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[allow(clippy::disallowed_methods, reason = "this is the source that is passed in everywhere else")]
    fn draw(&self) -> u64 {
        rand::random()
    }
}

/// Draws the same numbers in the same order for the same seed.
#[derive(Debug)]
pub struct SeededRandom(Mutex<StdRng>);

impl SeededRandom {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for SeededRandom {
    fn draw(&self) -> u64 {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_all_numbers() {
        let draw = |seed| {
            let random = SeededRandom::new(seed);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn fractions_lie_between_none_and_one() {
        #[derive(Debug)]
        struct Fixed(u64);
        impl Random for Fixed {
            fn draw(&self) -> u64 {
                self.0
            }
        }
        assert_eq!(Fixed(0).fraction(), 0.0);
        assert!(Fixed(u64::MAX).fraction() < 1.0);
        assert_eq!(Fixed(1 << 63).fraction(), 0.5);
    }
}
