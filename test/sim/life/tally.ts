/** Counts of the events that a workload is for: a run that did not go there proves nothing. */
export class Tally {
  readonly #counts = new Map<string, number>();

  add(name: string, count = 1): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + count);
  }

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  /** Adds the counts of another run. */
  merge(other: Tally): void {
    for (const [name, count] of other.#counts) this.add(name, count);
  }

  /** `name count`, by name. */
  get text(): string {
    const sorted = [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1));
    return sorted.map(([name, count]) => `${name} ${count}`).join(', ');
  }
}
