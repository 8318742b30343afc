//! Where connections wait that nobody knows yet: a bounded number of them, and the one that has waited longest makes room
//! for a newcomer. It judges nobody, and whoever has left it is not its concern any more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

type Taken = Arc<Mutex<BTreeMap<u64, CancellationToken>>>;

/// A bounded number of seats.
#[derive(Debug)]
pub(crate) struct Room {
    seats: Arc<Semaphore>,
    /// By age.
    taken: Taken,
    next: u64,
}

/// Held until a connection is known or gone.
#[derive(Debug)]
pub struct Seat {
    number: u64,
    lost: CancellationToken,
    taken: Taken,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(crate) fn new(seats: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(seats)), taken: Taken::default(), next: 0 }
    }

    /// Takes a seat. In a full room the oldest is lost, and taken once its holder has left, which is at once.
    pub(crate) async fn enter(&mut self) -> Option<Seat> {
        let permit = match self.seats.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if let Some((_, oldest)) = lock(&self.taken).pop_first() {
                    oldest.cancel();
                }
                // The semaphore is never closed.
                self.seats.clone().acquire_owned().await.ok()?
            }
        };
        let (number, lost) = (self.next, CancellationToken::new());
        self.next += 1;
        lock(&self.taken).insert(number, lost.clone());
        Some(Seat { number, lost, taken: self.taken.clone(), _permit: permit })
    }
}

impl Seat {
    /// Returns when a newcomer needs the seat; the connection must then be given up.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.taken).remove(&self.number);
    }
}

fn lock(taken: &Taken) -> std::sync::MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn is_lost(seat: &Seat) -> bool {
        seat.lost.is_cancelled()
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_oldest_seat_and_waits_until_it_is_free() {
        let mut room = Room::new(2);
        let (first, second) = (room.enter().await.unwrap(), room.enter().await.unwrap());
        assert!(!is_lost(&first) && !is_lost(&second));
        let third = {
            let mut entering = pin!(room.enter());
            poll_fn(|cx| {
                assert!(entering.as_mut().poll(cx).is_pending(), "never more than there are seats");
                Poll::Ready(())
            })
            .await;
            first.lost().await;
            assert!(!is_lost(&second));
            drop(first);
            entering.await.unwrap()
        };
        drop(third);
        let fourth = room.enter().await.unwrap();
        assert!(!is_lost(&second), "a seat that was left is taken before one is lost");
        drop((second, fourth));
        assert!(lock(&room.taken).is_empty());
    }
}
