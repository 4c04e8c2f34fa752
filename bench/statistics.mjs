/** Statistics over several rounds. */

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Of a sorted array. */
export function percentile(sorted, percent) {
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))];
}

/** Median, and the least and most. */
export function summary(values) {
  return { median: median(values), min: Math.min(...values), max: Math.max(...values), rounds: values };
}

/** Ratios of two contenders, round by round: what the machine did to one round, it did to both. */
export function ratio(ours, theirs) {
  return summary(ours.map((value, i) => value / theirs[i]));
}
