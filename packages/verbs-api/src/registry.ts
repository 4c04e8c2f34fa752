/** Objects of one kind by the engine's numbers. */
export class Registry<T> {
  readonly #objects = new Map<number, T>();
  readonly #onRemove: (object: T) => void;

  /** @param onRemove called with each object that is removed */
  constructor(onRemove: (object: T) => void) {
    this.#onRemove = onRemove;
  }

  add(number: number, object: T): void {
    this.#objects.set(number, object);
  }

  get(number: number): T | undefined {
    return this.#objects.get(number);
  }

  /** Forgets an object that was destroyed; its number may then be another's. */
  remove(number: number): void {
    const object = this.#objects.get(number);
    if (object === undefined) return;
    this.#objects.delete(number);
    this.#onRemove(object);
  }

  get size(): number {
    return this.#objects.size;
  }

  values(): IterableIterator<T> {
    return this.#objects.values();
  }
}
