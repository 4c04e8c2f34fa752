/** Programs whose client finds its server by address. */

/** A program that was started. */
export interface Started {
  readonly ended: Promise<Outcome>;
  kill(): void;
}

interface Outcome {
  readonly code: number | null;
  readonly output: string;
}

/** Times that both programs are started, where the first ones did not find each other. */
export const MEETINGS = 20;

/**
 * Starts a server and its client, until both end. Where the client fails, both start again, `times` in all.
 *
 * A client that comes too early is refused, and its server does not hear of it. And perftest 4.5 with -R connects twice: its client does so for
 * the second time without waiting until the server listens again, and that server then takes the first connection of the next client for its second
 * one, has no receive for it, and waits for ever.
 *
 * @param server resolves once the server listens, or has ended
 * @throws if the client failed each time, with the output of all
 */
export async function meet(
  server: () => Promise<Started>,
  client: () => Started,
  times = MEETINGS,
): Promise<[server: Outcome, client: Outcome]> {
  const tries: string[] = [];
  while (tries.length < times) {
    const serving = await server();
    const called = await client().ended;
    if (called.code === 0) return [await serving.ended, called];
    serving.kill();
    const { output } = await serving.ended;
    tries.push(`try ${tries.length + 1}: ${called.output}its server: ${output}`);
  }
  throw new Error(tries.join('\n'));
}
