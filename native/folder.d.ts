/** Path of the folder of this package. */
export const folder: string;
