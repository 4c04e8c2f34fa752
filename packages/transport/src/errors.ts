/** Errors that a caller caused, with the wrong value and the expected ones. */

/** `errno` names that verbs return (man pages of ibv_*(3)). */
export type Errno =
  | 'EINVAL'
  | 'ENOMEM'
  | 'EBUSY'
  | 'EOPNOTSUPP'
  | 'ENOENT'
  | 'EADDRINUSE'
  | 'EADDRNOTAVAIL'
  | 'EMSGSIZE'
  | 'ENOTCONN'
  | 'ECONNREFUSED'
  | 'ETIMEDOUT'
  | 'ECANCELED'
  | 'EPERM'
  | 'EIO'
  | 'EMFILE'
  | 'EAGAIN'
  | 'EBADF'
  | 'EFAULT';

export interface RoceErrorOptions {
  errno: Errno;
  /** The attribute at fault, where there is one: `pathMtu`, `ahAttr.grh.dgid`. */
  attribute?: string;
  /** The values that would have been accepted. */
  expected?: string;
  cause?: unknown;
}

/** The method by which Node's console shows an object. */
const inspectCustom: unique symbol = Symbol.for('nodejs.util.inspect.custom');
/** Values of an error on its last line. */
const ONE_LINE = { depth: 0, breakLength: Number.POSITIVE_INFINITY, maxArrayLength: 4, maxStringLength: 200 };
const SHOWN_BYTES = 16;

/** Bytes up to the zeros that pad them: `<148 bytes: 6e 6f, zeros>`. */
function bytesLine(bytes: Uint8Array): string {
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end--;
  const shown = Array.from(bytes.subarray(0, Math.min(end, SHOWN_BYTES)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join(' ');
  const rest =
    end > SHOWN_BYTES
      ? ' …'
      : `${end > 0 && end < bytes.length ? ',' : ''}${end < bytes.length ? ' zeros' : ''}`;
  return bytes.length === 0 ? '<0 bytes>' : `<${bytes.length} bytes:${shown && ` ${shown}`}${rest}>`;
}

/**
 * The error that every call of the public API throws or rejects with.
 * `code` is stable and starts with `ERR_ROCE_`; `errno` is the name that the verb of the same name
 * would return.
 */
export class RoceError extends Error {
  /** For messages. */
  override readonly name = 'RoceError';
  /** `ERR_ROCE_…`; stable. */
  readonly code: string;
  /** The errno of the verb of that name: `EINVAL`. */
  readonly errno: Errno;
  /** The attribute at fault, where there is one: `pathMtu`, `ahAttr.grh.dgid`. */
  readonly attribute: string | undefined;
  /** The values that would have been accepted. */
  readonly expected: string | undefined;

  constructor(code: string, message: string, options: RoceErrorOptions) {
    super(
      options.expected === undefined ? message : `${message} (expected ${options.expected})`,
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.code = code;
    this.errno = options.errno;
    this.attribute = options.attribute;
    this.expected = options.expected;
  }

  /** The stack, and all else in one line but for the cause. @internal */
  [inspectCustom](
    _depth: number,
    options: object,
    inspect: (value: unknown, options: object) => string,
  ): string {
    const { name, message, stack = '' } = this;
    const kind = this.constructor.name;
    const at = stack.indexOf(message);
    const frames = at < 0 ? '' : stack.slice(at + message.length);
    const { name: _n, cause, ...facts } = this as Record<string, unknown> & this;
    const shown = Object.entries(facts)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => {
        const text =
          value instanceof Uint8Array ? bytesLine(value) : inspect(value, { ...options, ...ONE_LINE });
        return `${key}: ${text}`;
      });
    const because =
      'cause' in this ? `\n  [cause]: ${inspect(cause ?? this.cause, options).replaceAll('\n', '\n  ')}` : '';
    return `${kind === name ? name : `${kind} [${name}]`}: ${message}${frames}\n  { ${shown.join(', ')} }${because}`;
  }
}

/** An argument that can't be taken: EINVAL, naming the attribute. */
export function invalid(attribute: string, message: string, expected?: string): RoceError {
  return new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `${attribute}: ${message}`, {
    errno: 'EINVAL',
    attribute,
    ...(expected === undefined ? {} : { expected }),
  });
}

/** A broken invariant of our own: nobody's input can lead here. Fails at once. */
export class RoceBug extends Error {
  override readonly name = 'RoceBug';
}
