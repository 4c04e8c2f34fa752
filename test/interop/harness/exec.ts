/** Commands in the guest, through its exec daemon (guest/execd.c has the protocol). */
import { connect, type Socket } from 'node:net';

export interface Result {
  stdout: string;
  stderr: string;
  /** Exit status; 128 + signal when a signal ended it. */
  code: number;
}

/** A command that runs in the guest. Closing it kills the command's process group. */
export class GuestProcess {
  readonly exited: Promise<Result>;
  onStdout: ((text: string) => void) | undefined;
  readonly #socket: Socket;
  #stdout = '';
  #stderr = '';

  constructor(port: number, command: string) {
    this.#socket = connect({ host: '127.0.0.1', port });
    this.#socket.setNoDelay(true);
    this.#frame('c', Buffer.from(command));
    this.exited = new Promise((resolve, reject) => {
      let buffered = Buffer.alloc(0);
      this.#socket.on('data', (data) => {
        buffered = Buffer.concat([buffered, data]);
        while (buffered.length >= 5) {
          const length = buffered.readUInt32BE(1);
          if (buffered.length < 5 + length) break;
          const type = String.fromCharCode(buffered[0]);
          const body = buffered.subarray(5, 5 + length);
          buffered = buffered.subarray(5 + length);
          if (type === 'o') {
            this.#stdout += body.toString();
            this.onStdout?.(body.toString());
          } else if (type === 'e') this.#stderr += body.toString();
          else if (type === 'x') {
            resolve({ stdout: this.#stdout, stderr: this.#stderr, code: body.readUInt32BE(0) });
            this.#socket.end();
          }
        }
      });
      this.#socket.on('error', reject);
      this.#socket.on('close', () =>
        reject(new Error(`the guest dropped: ${command}\n${this.#stdout}${this.#stderr}`)),
      );
    });
    this.exited.catch(() => {});
  }

  #frame(type: string, body: Uint8Array): void {
    const header = Buffer.alloc(5);
    header.write(type, 0, 'latin1');
    header.writeUInt32BE(body.length, 1);
    this.#socket.write(Buffer.concat([header, body]));
  }

  /** Output so far. */
  get output(): string {
    return this.#stdout + this.#stderr;
  }

  write(text: string): void {
    this.#frame('i', Buffer.from(text));
  }

  endInput(): void {
    this.#frame('i', new Uint8Array(0));
  }

  /** Ends the command at once. */
  kill(): void {
    this.#socket.destroy();
  }
}
