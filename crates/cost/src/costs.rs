//! What is counted, and the counts of one entry, a job each.

/// One thing that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Instructions,
    Allocations,
    FileBytes,
    Syncs,
    SystemCalls,
    RoundTrips,
    WalBytes,
    DatabaseInstructions,
    DatabaseSystemCalls,
}

/// How many there are.
pub(crate) const COLUMNS_COUNT: usize = 9;

impl Column {
    /// In the order of the tables.
    pub(crate) const ALL: [Self; COLUMNS_COUNT] = [
        Self::Instructions,
        Self::Allocations,
        Self::SystemCalls,
        Self::FileBytes,
        Self::Syncs,
        Self::RoundTrips,
        Self::WalBytes,
        Self::DatabaseInstructions,
        Self::DatabaseSystemCalls,
    ];

    /// The head of its column.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Allocations => "allocations",
            Self::FileBytes => "bytes written",
            Self::Syncs => "syncs",
            Self::SystemCalls => "system calls",
            Self::RoundTrips => "round trips",
            Self::WalBytes => "WAL bytes",
            Self::DatabaseInstructions => "database's instructions",
            Self::DatabaseSystemCalls => "database's system calls",
        }
    }
}

/// Counts per job; those that do not apply are not there.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Costs([Option<f64>; COLUMNS_COUNT]);

impl Costs {
    pub(crate) fn get(&self, column: Column) -> Option<f64> {
        Column::ALL.iter().zip(self.0).find(|(at, _)| **at == column).and_then(|(_, value)| value)
    }

    pub(crate) fn set(&mut self, column: Column, value: f64) {
        for (at, slot) in Column::ALL.iter().zip(&mut self.0) {
            if *at == column {
                *slot = Some(value);
            }
        }
    }

    pub(crate) fn set_count(&mut self, column: Column, count: u64) {
        self.set(column, number(count));
    }
}

/// What was counted between two marks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) counts: Costs,
    pub(crate) seconds: f64,
    /// Jobs done in it.
    pub(crate) jobs: u64,
}

impl Window {
    /// What one job costs, without what goes on by the clock whether there is much to do or little: that is known from a calm
    /// window, in which few jobs were done or none.
    pub(crate) fn per_job(&self, calm: &Self) -> Costs {
        let part = self.seconds / calm.seconds;
        let jobs = number(self.jobs) - number(calm.jobs) * part;
        let mut costs = Costs::default();
        for column in Column::ALL {
            if let (Some(all), Some(calm)) = (self.counts.get(column), calm.counts.get(column)) {
                costs.set(column, ((all - calm * part) / jobs).max(0.0));
            }
        }
        costs
    }
}

/// No count here comes near the bound of what a float tells exactly.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
#[allow(clippy::allow_attributes_without_reason, reason = "pedantic lints are not on everywhere")]
pub(crate) const fn number(count: u64) -> f64 {
    count as f64
}

/// As the tables show it: three digits where it is small.
pub(crate) fn shown(value: f64) -> String {
    if value < 100.0 {
        let text = format!("{value:.2}");
        return text;
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_place_of_its_own() {
        let mut costs = Costs::default();
        for (at, column) in Column::ALL.into_iter().enumerate() {
            assert_eq!(costs.get(column), None);
            costs.set_count(column, at as u64);
        }
        let seen: Vec<f64> = Column::ALL.iter().filter_map(|column| costs.get(*column)).collect();
        assert_eq!(seen, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }

    #[test]
    fn what_goes_on_by_the_clock_is_no_part_of_a_job() {
        // A job takes 1,000, and every second 50.
        let window = |jobs: u64, seconds: f64| {
            let mut counts = Costs::default();
            counts.set(Column::Instructions, 1_000.0 * number(jobs) + 50.0 * seconds);
            Window { counts, seconds, jobs }
        };
        for calm in [window(0, 2.0), window(10, 4.0), window(3, 0.5)] {
            let costs = window(400, 8.0).per_job(&calm);
            assert_eq!(costs.get(Column::Instructions).map(f64::round), Some(1_000.0));
        }
    }

    #[test]
    fn numbers_are_read_easily() {
        let texts = [0.0, 1.005, 99.994, 100.0, 999.6, 123_456.4, 1_234_567.0].map(shown);
        assert_eq!(texts, ["0.00", "1.00", "99.99", "100", "1,000", "123,456", "1,234,567"]);
    }
}
