from scipy import fft as fft
from scipy import interpolate as interpolate
from scipy import linalg as linalg
from scipy import optimize as optimize
from scipy import sparse as sparse
from scipy import special as special
