/** The agent next to a device (agent/agent.c): a line with a request, a line with the answer. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { constants } from 'node:os';
import { Untestable } from '../device.ts';

type Answer = Record<string, unknown> & { ok: boolean };

/** ms that an answer may take, on top of the time that the request itself waits for. */
const PATIENCE = 10_000;

/** Bytes of an answer that is taken: a longer one is no agent's. */
const MAX_ANSWER = 1 << 22;

interface Waiting {
  resolve: (answer: Answer) => void;
  reject: (error: Error) => void;
  timer: NodeJS.Timeout;
}

const EXPECTED = 'expected {"ok":true,…} or {"ok":false,"what":…,"errno":…,"text":…}';

/** Texts of the agent are shown in a terminal. */
const plain = (text: string): string => text.replaceAll(/\p{Cc}/gu, '?');

/** @throws Error for a line that is no answer */
function answerOf(line: string): Answer {
  try {
    const answer = JSON.parse(line, (_, value) => (typeof value === 'string' ? plain(value) : value));
    if (typeof answer.ok === 'boolean') return answer;
  } catch {}
  throw new Error(`the agent answers ${plain(line.slice(0, 80))}: ${EXPECTED}`);
}

/** The agent refused a request; `errno` is libibverbs', or its own. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly errno: number;

  constructor(message: string, errno: number) {
    super(message);
    this.errno = errno;
  }
}

/** A connection to an agent. Requests are answered in order. */
export class Agent {
  /** Whether requests are sent before earlier ones are answered: a simple agent may lose those. */
  takesAhead = false;
  readonly #socket: Socket;
  readonly #waiting: Waiting[] = [];
  #last: Promise<unknown> = Promise.resolve();
  #buffer = '';
  #gone: Error | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8').setNoDelay(true);
    socket.on('data', (text: string) => this.#take(text));
    socket.on('error', (error) => this.#end(error));
    socket.on('close', () => this.#end(new Error('the agent is gone')));
  }

  static async connect(host: string, port: number): Promise<Agent> {
    const socket = connect({ host, port });
    const timer = setTimeout(() => socket.destroy(new Error(`no agent at ${host} port ${port}`)), PATIENCE);
    try {
      await once(socket, 'connect');
    } catch (cause) {
      const { message } = cause as Error;
      const why = message.startsWith('no agent') ? '' : ` (${message})`;
      throw new Error(
        `no agent at ${host} port ${port}${why}: compile and start the agent there first; roce conform --print-agent prints its source`,
        {
          cause,
        },
      );
    } finally {
      clearTimeout(timer);
    }
    return new Agent(socket);
  }

  get gone(): boolean {
    return this.#gone !== undefined;
  }

  /**
   * Asks for something. @param wait ms that the agent itself waits
   * @throws Refused where the agent refuses; Untestable if it has no such verb
   * @throws Error where it does not answer, or is gone
   */
  call(verb: string, values: Readonly<Record<string, unknown>> = {}, wait = 0): Promise<Answer> {
    const answer = this.#ask(this.takesAhead ? undefined : this.#last, verb, values, wait);
    this.#last = answer.catch(() => {});
    return answer;
  }

  /** Asks once the earlier request, if there is one to wait for, is answered. */
  async #ask(
    earlier: Promise<unknown> | undefined,
    verb: string,
    values: Readonly<Record<string, unknown>>,
    wait: number,
  ): Promise<Answer> {
    await earlier;
    if (this.#gone !== undefined) throw this.#gone;
    const given = Object.entries(values).filter(([, value]) => value !== undefined);
    const line = [verb, ...given.map(([key, value]) => `${key}=${value}`)].join(' ');
    const answer = await new Promise<Answer>((resolve, reject) => {
      const timer = setTimeout(
        () =>
          this.#end(new Error(`the agent did not answer ${verb}: it serves one program at a time, or hangs`)),
        PATIENCE + wait,
      );
      this.#waiting.push({ resolve, reject, timer });
      this.#socket.write(`${line}\n`);
    });
    if (answer.ok === false && answer.errno === constants.errno.ENOSYS)
      throw new Untestable(`the agent has no verb ${verb}`);
    if (!answer.ok) throw new Refused(`agent: ${verb}: ${answer.what}: ${answer.text}`, Number(answer.errno));
    return answer;
  }

  #take(text: string): void {
    this.#buffer += text;
    if (this.#buffer.length > MAX_ANSWER) this.#end(new Error('the agent sends more than an answer'));
    for (let end = this.#buffer.indexOf('\n'); end >= 0; end = this.#buffer.indexOf('\n')) {
      const line = this.#buffer.slice(0, end);
      this.#buffer = this.#buffer.slice(end + 1);
      const waiting = this.#waiting.shift();
      if (waiting === undefined) {
        this.#end(new Error(`the agent sent an answer to no request: ${plain(line.slice(0, 80))}`));
        return;
      }
      clearTimeout(waiting.timer);
      try {
        waiting.resolve(answerOf(line));
      } catch (error) {
        waiting.reject(error as Error);
      }
    }
  }

  #end(error: Error): void {
    this.#gone ??= error;
    this.#socket.destroy();
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer);
      reject(this.#gone);
    }
  }

  close(): void {
    this.#end(new Error('the agent was closed'));
  }
}

/** The agent's source, to be compiled next to a device. */
export const AGENT_SOURCE = new URL('../../agent/agent.c', import.meta.url);
