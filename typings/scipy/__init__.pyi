from scipy import linalg as linalg
from scipy import optimize as optimize
from scipy import special as special
