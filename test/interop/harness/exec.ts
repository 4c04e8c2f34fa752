/** Commands in the guest, through its exec daemon (guest/execd.c has the protocol). */
import { connect, type Socket } from 'node:net';
import { constants } from 'node:os';
import { Transcript } from './logs.ts';

export interface Result {
  stdout: string;
  stderr: string;
  /** Exit status; 128 + signal when a signal ended it. */
  code: number;
}

const HEADER = 5;
/** Bytes of input in a frame: the daemon takes 16 MiB at most. */
const LONGEST = 4 << 20;
let commands = 0;

/** A command that runs in the guest. Closing it kills the command's process group. */
export class GuestProcess {
  readonly exited: Promise<Result>;
  onStdout: ((text: string) => void) | undefined;
  readonly #socket: Socket;
  readonly #transcript: Transcript;
  readonly #id = ++commands;
  #stdout = '';
  #stderr = '';

  constructor(
    { execHost, execPort, logs }: { execHost: string; execPort: number; logs: string },
    command: string,
  ) {
    this.#transcript = new Transcript(logs);
    this.#socket = connect({ host: execHost, port: execPort });
    this.#socket.setNoDelay(true);
    this.#note('$', command);
    this.#frame('c', Buffer.from(command));
    this.exited = new Promise((resolve, reject) => {
      let buffered = Buffer.alloc(0);
      this.#socket.on('data', (data) => {
        buffered = Buffer.concat([buffered, data]);
        while (buffered.length >= HEADER) {
          const length = buffered.readUInt32BE(1);
          if (buffered.length < HEADER + length) break;
          const type = String.fromCharCode(buffered[0]);
          const body = buffered.subarray(HEADER, HEADER + length);
          buffered = buffered.subarray(HEADER + length);
          if (type === 'x') {
            const code = body.readUInt32BE(0);
            this.#note('exit', `${code}`);
            resolve({ stdout: this.#stdout, stderr: this.#stderr, code });
            this.#socket.end();
          } else this.#take(type, body.toString());
        }
      });
      this.#socket.on('error', reject);
      this.#socket.on('close', () =>
        reject(new Error(`the guest dropped: ${command}\n${this.#stdout}${this.#stderr}`)),
      );
    });
    this.exited.catch(() => {});
  }

  #take(type: string, text: string): void {
    this.#note(type === 'e' ? 'err' : 'out', text);
    if (type === 'e') {
      this.#stderr += text;
      return;
    }
    this.#stdout += text;
    this.onStdout?.(text);
  }

  #note(what: string, text: string): void {
    this.#transcript.note(this.#id, what, text);
  }

  #frame(type: string, body: Uint8Array): void {
    const header = Buffer.alloc(HEADER);
    header.write(type, 0, 'latin1');
    header.writeUInt32BE(body.length, 1);
    this.#socket.write(Buffer.concat([header, body]));
  }

  /** Output so far. */
  get output(): string {
    return this.#stdout + this.#stderr;
  }

  write(text: string): void {
    this.#note('in', text);
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += LONGEST) this.#frame('i', bytes.subarray(at, at + LONGEST));
  }

  endInput(): void {
    this.#frame('i', new Uint8Array(0));
  }

  /** Sends a signal to the command's process group; `exited` has the result. */
  signal(name: NodeJS.Signals): void {
    this.#note('signal', name);
    this.#frame('s', Uint8Array.of(constants.signals[name]));
  }

  /** Ends the command at once. */
  kill(): void {
    this.#socket.destroy();
  }
}
