//! One value for each priority, without an index that could miss.

use std::ops::{Index, IndexMut};

use crate::job::Priority;

#[derive(Debug, Clone, Default)]
pub(super) struct PerPriority<V>([V; 4]);

impl<V> PerPriority<V> {
    pub(super) fn from_fn(mut value: impl FnMut(Priority) -> V) -> Self {
        Self(Priority::ALL.map(&mut value))
    }

    /// The values, most urgent first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.0.iter()
    }
}

impl<V> Index<Priority> for PerPriority<V> {
    type Output = V;

    fn index(&self, priority: Priority) -> &V {
        let [critical, high, normal, low] = &self.0;
        match priority {
            Priority::Critical => critical,
            Priority::High => high,
            Priority::Normal => normal,
            Priority::Low => low,
        }
    }
}

impl<V> IndexMut<Priority> for PerPriority<V> {
    fn index_mut(&mut self, priority: Priority) -> &mut V {
        let [critical, high, normal, low] = &mut self.0;
        match priority {
            Priority::Critical => critical,
            Priority::High => high,
            Priority::Normal => normal,
            Priority::Low => low,
        }
    }
}
