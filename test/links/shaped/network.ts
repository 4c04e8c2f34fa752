/** Two network namespaces with a cable between them that has a speed: 10.77.0.1 and 10.77.0.2. */
import { Namespace } from '../../sockets/port/namespace.ts';

const INTERFACES = ['roce0', 'far0'] as const;

/** A veth between two network namespaces, slower than its ends. */
export class ShapedCable implements Disposable {
  readonly #ends: readonly [Namespace, Namespace];

  /** Undefined where there is no root, or no `ip`; then `tell` gets the reason. */
  static make(name: string, tell: (why: string) => void): ShapedCable | undefined {
    const a = Namespace.make(`${name}-a`, tell);
    const b = a && Namespace.make(`${name}-b`, tell);
    if (b) return new ShapedCable([a, b]);
    a?.[Symbol.dispose]();
    return undefined;
  }

  private constructor(ends: readonly [Namespace, Namespace]) {
    this.#ends = ends;
    const [a, b] = ends;
    // Each was made with a pair of its own; the first one's goes across.
    b.ip('link delete roce0');
    a.ip(`link set far0 netns ${b.name}`);
    b.ip('link set far0 addrgenmode none');
    b.ip('link set far0 up');
    b.ip('address add 10.77.0.2/24 dev far0');
  }

  /** tc-tbf(8) in both directions, with a queue that nothing overflows: `100mbit`. */
  speed(rate: string): void {
    const [a, b] = this.#ends;
    a.tc(`qdisc replace dev roce0 root tbf rate ${rate} burst 64kb limit 16mb`);
    b.tc(`qdisc replace dev far0 root tbf rate ${rate} burst 64kb limit 16mb`);
  }

  /** Bytes of payload that a frame may have, at both ends. */
  mtu(bytes: number): void {
    for (const [i, end] of this.#ends.entries()) end.ip(`link set ${INTERFACES[i]} mtu ${bytes}`);
  }

  /** ip(8) at an end. @returns its output */
  ip(end: 0 | 1, command: string): string {
    return this.#ends[end].ip(command);
  }

  /** The hardware address of an end, as 12 hexadecimal digits. */
  macOf(end: 0 | 1): string {
    const [{ address }] = JSON.parse(this.#ends[end].ip(`-json link show ${INTERFACES[end]}`));
    return address.replaceAll(':', '');
  }

  /** The namespaces' names, interfaces and addresses. */
  get ends(): { namespace: string; interface: string; address: string }[] {
    return this.#ends.map(({ name }, i) => ({
      namespace: name,
      interface: INTERFACES[i],
      address: `10.77.0.${i + 1}`,
    }));
  }

  [Symbol.dispose](): void {
    for (const end of this.#ends) end[Symbol.dispose]();
  }
}
