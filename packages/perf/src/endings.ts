/** The ends of what a call has made, which has to go whether the call succeeds or fails. */
type Ending = () => Promise<unknown> | undefined;

/** Ends things in the reverse order of their making. */
export class Endings {
  readonly #endings: Ending[] = [];

  add(ending: Ending): void {
    this.#endings.push(ending);
  }

  /** Ends all, also after one that failed. Rejects with the first error. */
  async run(): Promise<void> {
    const errors: unknown[] = [];
    for (const ending of this.#endings.splice(0).reverse()) {
      try {
        await ending();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Runs a call, and ends all if it fails. Rejects with the call's error. */
  async unless<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      await this.run().catch(() => {}); // They may fail for the same reason.
      throw error;
    }
  }

  /** Runs a call, and ends all after it. Rejects with the call's error, or else with the first of the ends. */
  async after<T>(call: () => Promise<T>): Promise<T> {
    const result = await this.unless(call);
    await this.run();
    return result;
  }
}
