/** Round trips, as ping (iputils) sums them up. */

export class Statistics {
  #sent = 0;
  #times: number[] = [];

  /** A ping leaves. */
  sent(): void {
    this.#sent++;
  }

  /** Its answer came. @param milliseconds the round trip */
  received(milliseconds: number): void {
    this.#times.push(milliseconds);
  }

  /** Pings without an answer. */
  get lost(): number {
    return this.#sent - this.#times.length;
  }

  get summary(): {
    transmitted: number;
    received: number;
    minimum?: number;
    average?: number;
    maximum?: number;
    deviation?: number;
  } {
    const times = this.#times;
    const counts = { transmitted: this.#sent, received: times.length };
    if (times.length === 0) return counts;
    const average = times.reduce((sum, time) => sum + time, 0) / times.length;
    const squares = times.reduce((sum, time) => sum + time * time, 0) / times.length;
    return {
      ...counts,
      minimum: times.reduce((least, time) => Math.min(least, time)),
      average,
      maximum: times.reduce((most, time) => Math.max(most, time)),
      // ping's mdev: the root of the variance.
      deviation: Math.sqrt(Math.max(0, squares - average * average)),
    };
  }

  /** The last lines of ping. @param elapsed milliseconds */
  lines(host: string, elapsed: number): string[] {
    const { transmitted, received, minimum, average, maximum, deviation } = this.summary;
    const loss = transmitted === 0 ? 0 : (100 * this.lost) / transmitted;
    const lines = [
      '',
      `--- ${host} ping statistics ---`,
      `${transmitted} packets transmitted, ${received} received, ${Number(loss.toPrecision(4))}% packet loss, time ${Math.round(elapsed)}ms`,
    ];
    if (minimum === undefined) return lines;
    const figures = [minimum, average!, maximum!, deviation!].map((value) => value.toFixed(3)).join('/');
    return [...lines, `rtt min/avg/max/mdev = ${figures} ms`];
  }
}
